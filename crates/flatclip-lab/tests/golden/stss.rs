//! `fga-stss`, `fga-stss-siglip`: the text bank from given noise, scores, selection, both votes.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs;
use flatclip::methods::adapters::stss::{Config, Stss};
use flatclip::methods::aggregate::{Tie, Vote, vote};
use flatclip::methods::bank::{Directions, RadiusUnit, RandomPerturbation, TextBank};
use flatclip::methods::probability::mean_probability;
use flatclip::methods::sam::NormScope;
use flatclip::methods::select::{ViewLogits, ranking};
use flatclip::methods::{Adapter as _, Task, ViewSet};

fn config(case: &Case) -> Fallible<Config> {
    Ok(Config {
        radius: case.number("rho_prime")?,
        perturbations: case.count("R")?,
        lambda: case.number("lambda")?,
        fraction: case.number("keep_fraction")?,
        // The average is compared first; the votes, which are the default, below.
        vote: Vote::MeanProbability,
        ..Config::default()
    })
}

/// The bank of the case: its own noise instead of drawn directions.
fn bank(case: &Case, task: &Task, config: &Config) -> Fallible<TextBank> {
    let how = RandomPerturbation {
        count: config.perturbations,
        radius: config.radius,
        unit: RadiusUnit::Absolute,
        norm: NormScope::Whole,
        directions: Directions::Gaussian,
    };
    let context = task.context.as_ref().ok_or("no context")?;
    let noise = case.f32("in.noise")?.chunks(context.data.len());
    let contexts: Vec<_> = noise.map(|noise| how.apply(context, noise)).collect();
    Ok(TextBank::encode(task.text_side("stss")?, task.text_features().clone(), &contexts)?)
}

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let task = inputs::context_task(case, &clip)?;
    let features = match case.has("in.view_features") {
        true => inputs::unit(inputs::matrix(case, "in.view_features")?),
        false => case.image_features(&clip, "in.views")?,
    };
    let config = config(case)?;
    let bank = bank(case, &task, &config)?;

    let mut report = Report::of(case);
    let tight = Tolerance::atol(1e-5);
    report.close_to("text_features", bank.base().data(), tight);
    let perturbed: Vec<f32> = bank.perturbed().iter().flat_map(|m| m.data().to_vec()).collect();
    report.close_to("text_features_perturbed", &perturbed, tight);
    let views = ViewLogits::new(&features, bank.base(), task.logit_scale);
    let logits = Tolerance { atol: 1e-3, rtol: 1e-4, ..Tolerance::default() };
    let bias = clip.logit_bias().unwrap_or(0.0);
    let biased: Vec<f32> = views.logits.data().iter().map(|x| x + bias).collect();
    report.close_to("logits", &biased, logits);
    let entropy = case.tolerance("entropy", Tolerance::atol(2e-3));
    report.close_to("entropy", &views.entropies, entropy);

    let stss = Stss::with_bank(config.clone(), bank.clone());
    let scorer = stss.scorer(task.logit_scale).ok_or("no bank")?;
    let around: Vec<f32> = scorer.losses_around(&features).concat();
    report.close_to("entropy_perturbed", &around, entropy);
    let selection = config.select(scorer.all(&features, &views).values);
    let scores = case.f32("out.score")?;
    report.compare("score", &selection.scores, scores, case.tolerance("score", Tolerance::atol(4e-3)));
    same_order(&mut report, &selection.ranking, &case.indices("out.ranking")?, scores);
    let expected = case.indices("out.selected")?;
    let sorted = |list: &[usize]| {
        ranking(&list.iter().map(|&v| v as f32).collect::<Vec<_>>()).iter().map(|&i| list[i]).collect::<Vec<_>>()
    };
    report.same("selected", &sorted(&selection.selected), &sorted(&expected));

    let answer = stss.adapt(&task, &ViewSet::new("case", &features))?;
    let average = case.tolerance("avg_prob", Tolerance::atol(1e-3));
    report.close_to("avg_prob", &answer.probabilities, average);
    report.equal("avg_pred", [answer.prediction]);
    let majority = vote(Vote::Majority, Tie::MeanProbability, &views.logits, &selection);
    let votes: Vec<usize> = majority.class_scores.iter().map(|&v| v as usize).collect();
    report.equal("votes", &votes);
    report.equal("vote_pred", [majority.prediction]);
    let usual = Stss::with_bank(Config { vote: Config::default().vote, ..config.clone() }, bank.clone());
    let usual = usual.adapt(&task, &ViewSet::new("case", &features))?;
    report.same("default_pred", &[usual.prediction], &case.indices("out.vote_pred")?);
    if case.has("out.avg_all_prob") {
        let all: Vec<usize> = (0..features.rows()).collect();
        let all: Vec<f32> = mean_probability(&views.logits, &all).iter().map(|&p| p as f32).collect();
        report.close_to("avg_all_prob", &all, average);
    }
    Ok(report)
}

/// Rankings may differ only between views whose scores are closer than 1e-3.
fn same_order(report: &mut Report<'_>, found: &[usize], expected: &[usize], scores: &[f32]) {
    let same = found.len() == expected.len()
        && found.iter().zip(expected).all(|(&a, &b)| a == b || (scores[a] - scores[b]).abs() < 1e-3);
    report.check("ranking", same, format!("{found:?} expected {expected:?}"));
}
