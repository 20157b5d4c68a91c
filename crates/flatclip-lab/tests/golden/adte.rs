//! ADTE on a set of features, its selections with one exponent, and our form for streams.

use super::case::{Case, Fallible, Report};
use super::inputs::{feature_task, places, stream};
use flatclip::methods::adapters::adte::{self, Adte};
use flatclip::methods::adapters::adte_stream::{self, AdteStream};
use flatclip::methods::adapters::zero::Zero;
use flatclip::methods::aggregate::Vote;
use flatclip::methods::probability::argmax;
use flatclip::methods::select::{Score, ViewLogits};
use flatclip::methods::{Adapter as _, BatchAdapter as _, Decision, OnlineAdapter as _, Task, ViewSet};
use flatclip_tensor::Matrix;

fn config(case: &Case) -> Fallible<Adte> {
    let range = |index: usize| case.hyper("q_range")[index].as_f64().ok_or("no q_range");
    Ok(Adte {
        fraction: case.number("gamma")?,
        slots: case.count("memory_size")?,
        gap: case.number("gap_threshold")?,
        low: range(0)?,
        high: range(1)?,
        rounds: case.count("power_iterations")?,
        tolerance: case.number("power_eps")?,
        compat: true,
    })
}

/// Scores, selections, summed probabilities and classes of an answer.
fn collect(report: &mut Report<'_>, part: &str, answer: &Decision) {
    let name = |output: &str| format!("{part}.{output}");
    let count = answer.explanation.selected.len() as f32;
    if report.case.has(&format!("out.{part}.score")) {
        report.real(&name("score"), &answer.explanation.scores);
    }
    report.whole(&name("selected"), &answer.explanation.selected);
    report.real(&name("p_bar"), answer.probabilities.iter().map(|p| p * count));
    report.whole(&name("pred"), [answer.prediction]);
}

/// Views selected with one score for all classes.
fn one_score(task: &Task, images: &[Matrix], fraction: f64, score: Score) -> Fallible<Vec<Decision>> {
    let vote = Vote::MeanProbability;
    let zero = Zero { fraction, score, vote, ..Zero::default() };
    images.iter().map(|image| Ok(zero.adapt(task, &ViewSet::new("case", image))?)).collect()
}

fn online(report: &mut Report<'_>, task: &Task, images: &[Matrix]) -> Fallible<()> {
    let Adte { fraction, slots, gap, low, high, rounds, tolerance, compat } = config(report.case)?;
    let start = report.case.count("online_start")?;
    let options = adte_stream::Config { fraction, slots, gap, low, high, rounds, tolerance, compat, start, every: 1 };
    let mut adapter = AdteStream::new(options);
    adapter.prepare(task)?;
    for image in images {
        collect(report, "online", &adapter.adapt(task, &ViewSet::new("case", image))?);
        let used = adapter.exponents.clone().unwrap_or_else(|| vec![1.0; task.class_count()]);
        report.real("online.class_q", used);
    }
    Ok(())
}

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let (task, images, options) = (feature_task(case)?, stream(case)?, config(case)?);
    let mut report = Report::of(case);
    for image in &images {
        let views = ViewLogits::of(&task, &ViewSet::new("case", image));
        report.whole("zero_shot_pred", [argmax(views.logits.row(0))]);
        let (mean, gap) = adte::mean_logits(&views);
        report.real("mean_logits", mean);
        report.real("gap", [gap]);
    }

    let set: Vec<ViewSet<'_>> = images.iter().map(|image| ViewSet::new("case", image)).collect();
    let adapter = options.clone();
    let bank = adapter.bank(&task, &set)?;
    let stored = bank.gaps();
    report.equal("bank_count", stored.iter().map(Vec::len));
    report.close("bank_gap", places(&stored, options.slots).map(|gap| gap.copied().unwrap_or(-1.0)));
    let classes = task.class_count();
    let mut table = vec![0.0; classes * classes];
    for (class, column) in bank.columns() {
        column.iter().enumerate().for_each(|(k, &p)| table[k * classes + class] = p as f32);
    }
    report.close("P", &table);
    report.close("log_q", bank.log_frequencies(&options));
    report.close("class_q", bank.exponents(&options));

    adapter.adapt(&task, &set)?.iter().for_each(|answer| collect(&mut report, "adte", answer));
    for answer in one_score(&task, &images, options.fraction, Score::Entropy)? {
        collect(&mut report, "shannon", &answer);
    }
    for q in case.hyper("q").as_array().ok_or("no list q")? {
        let score = Score::Tsallis(q.as_f64().ok_or("an exponent is no number")?);
        for answer in one_score(&task, &images, options.fraction, score)? {
            collect(&mut report, "te", &answer);
        }
    }
    online(&mut report, &task, &images)?;
    Ok(report)
}
