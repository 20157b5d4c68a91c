//! ADTE on a set of features, its selections with one exponent, and our form for streams.

use super::case::{Case, Report};
use super::inputs::{close, fault, feature_task, predictions, rounded, stream};
use flatclip::methods::adapters::adte::{self, Adte};
use flatclip::methods::adapters::adte_stream::{self, AdteStream};
use flatclip::methods::adapters::zero::Zero;
use flatclip::methods::aggregate::Vote;
use flatclip::methods::probability::argmax;
use flatclip::methods::select::{Score, ViewLogits};
use flatclip::methods::{Adapter as _, BatchAdapter as _, Decision, OnlineAdapter as _, Task, ViewSet};
use flatclip_tensor::Matrix;

fn config(case: &Case) -> Result<Adte, String> {
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

/// Scores, selections, summed probabilities and classes of some answers.
#[derive(Default)]
struct Found {
    scores: Vec<f32>,
    selected: Vec<usize>,
    sums: Vec<f32>,
    answers: Vec<usize>,
}

impl Found {
    fn add(&mut self, answers: &[Decision]) {
        for answer in answers {
            let count = answer.explanation.selected.len() as f32;
            self.scores.extend(&answer.explanation.scores);
            self.selected.extend(&answer.explanation.selected);
            self.sums.extend(answer.probabilities.iter().map(|p| p * count));
        }
        self.answers.extend(predictions(answers));
    }

    fn compare(&self, report: &mut Report, case: &Case, part: &str) -> Result<(), String> {
        if case.has(&format!("out.{part}.score")) {
            close(report, case, &format!("{part}.score"), &self.scores)?;
        }
        report.equal(&format!("{part}.selected"), &self.selected, &case.indices(&format!("out.{part}.selected"))?);
        close(report, case, &format!("{part}.p_bar"), &self.sums)?;
        report.equal(&format!("{part}.pred"), &self.answers, &case.indices(&format!("out.{part}.pred"))?);
        Ok(())
    }
}

/// Views selected with one score for all classes.
fn one_score(task: &Task, images: &[Matrix], fraction: f64, score: Score) -> Result<Vec<Decision>, String> {
    let vote = Vote::MeanProbability;
    let zero = Zero { fraction, score, vote, ..Zero::default() };
    images.iter().map(|image| zero.adapt(task, &ViewSet::new("case", image)).map_err(fault)).collect()
}

fn online(report: &mut Report, case: &Case, task: &Task, images: &[Matrix]) -> Result<(), String> {
    let Adte { fraction, slots, gap, low, high, rounds, tolerance, compat } = config(case)?;
    let start = case.count("online_start")?;
    let options = adte_stream::Config { fraction, slots, gap, low, high, rounds, tolerance, compat, start, every: 1 };
    let mut adapter = AdteStream::new(options);
    adapter.prepare(task).map_err(fault)?;
    let (mut found, mut exponents) = (Found::default(), Vec::new());
    for image in images {
        found.add(&[adapter.adapt(task, &ViewSet::new("case", image)).map_err(fault)?]);
        let used = adapter.exponents.clone().unwrap_or_else(|| vec![1.0; task.class_count()]);
        exponents.extend(rounded(&used));
    }
    close(report, case, "online.class_q", &exponents)?;
    found.compare(report, case, "online")
}

pub fn run(case: &Case) -> Result<Report, String> {
    let (task, images, options) = (feature_task(case)?, stream(case)?, config(case)?);
    let mut report = Report::default();
    let (mut means, mut gaps, mut zero_shot) = (vec![], vec![], vec![]);
    for image in &images {
        let views = ViewLogits::of(&task, &ViewSet::new("case", image));
        zero_shot.push(argmax(views.logits.row(0)));
        let (mean, gap) = adte::mean_logits(&views);
        means.extend(mean);
        gaps.push(gap);
    }
    report.equal("zero_shot_pred", &zero_shot, &case.indices("out.zero_shot_pred")?);
    close(&mut report, case, "mean_logits", &means)?;
    close(&mut report, case, "gap", &gaps)?;

    let set: Vec<ViewSet<'_>> = images.iter().map(|image| ViewSet::new("case", image)).collect();
    let adapter = options.clone();
    let bank = adapter.bank(&task, &set).map_err(fault)?;
    let stored = bank.gaps();
    report.equal("bank_count", &stored.iter().map(Vec::len).collect::<Vec<_>>(), &case.indices("out.bank_count")?);
    let padded = |gaps: &Vec<f32>| (0..options.slots).map(|i| gaps.get(i).copied().unwrap_or(-1.0)).collect::<Vec<_>>();
    close(&mut report, case, "bank_gap", &stored.iter().flat_map(padded).collect::<Vec<_>>())?;
    let classes = task.class_count();
    let mut table = vec![0.0; classes * classes];
    for (class, column) in bank.columns() {
        column.iter().enumerate().for_each(|(k, &p)| table[k * classes + class] = p as f32);
    }
    close(&mut report, case, "P", &table)?;
    close(&mut report, case, "log_q", &rounded(&bank.log_frequencies(&options)))?;
    close(&mut report, case, "class_q", &rounded(&bank.exponents(&options)))?;

    let mut found = Found::default();
    found.add(&adapter.adapt(&task, &set).map_err(fault)?);
    found.compare(&mut report, case, "adte")?;
    let mut shannon = Found::default();
    shannon.add(&one_score(&task, &images, options.fraction, Score::Entropy)?);
    shannon.compare(&mut report, case, "shannon")?;
    let mut tsallis = Found::default();
    for q in case.hyper("q").as_array().ok_or("no list q")? {
        let score = Score::Tsallis(q.as_f64().ok_or("an exponent is no number")?);
        tsallis.add(&one_score(&task, &images, options.fraction, score)?);
    }
    tsallis.compare(&mut report, case, "te")?;
    online(&mut report, case, &task, &images)?;
    Ok(report)
}
