//! StatA and TransCLIP on sets of features `[B, N, D]`.

use super::case::{Case, Fallible, Report};
use super::inputs::{feature_task, stream};
use flatclip::methods::ViewSet;
use flatclip::methods::adapters::{stata, transclip};
use flatclip::methods::probability::argmax;
use flatclip_tensor::Matrix;

/// Fits every set of the case, whose images are matrices of one row.
fn fits(
    report: &mut Report<'_>,
    classes: usize,
    fit: impl Fn(&[ViewSet<'_>]) -> stata::Fit,
) -> Fallible<Vec<stata::Fit>> {
    let mut all = Vec::new();
    for set in stream(report.case)? {
        let images: Vec<Matrix> = (0..set.rows()).map(|row| set.select_rows(&[row])).collect();
        let fit = fit(&images.iter().map(|image| ViewSet::new("case", image)).collect::<Vec<_>>());
        report.real("y_hat", &fit.zero_shot);
        report.real("z_first", &fit.first);
        report.real("z", &fit.labels);
        report.real("mu", fit.means.data());
        report.whole("neighbours", fit.neighbours.concat());
        report.whole("pred", fit.labels.chunks_exact(classes).map(argmax));
        all.push(fit);
    }
    Ok(all)
}

pub fn stata(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let adapter = stata::StatA {
        text_weight: case.number("lambda_y_hat")?,
        graph_weight: case.number("lambda_laplacian")?,
        neighbours: case.count("n_neighbors")?,
        rounds: case.count("max_iter")?,
        alpha: case.number("alpha")?,
        soft_counts: case.hyper("soft_beta").as_bool().unwrap_or(false),
        ..stata::StatA::default()
    };
    let mut report = Report::of(case);
    for fit in fits(&mut report, task.class_count(), |images| adapter.fit(&task, images))? {
        report.real("cov", fit.variances.data());
        report.real("beta", fit.betas);
    }
    Ok(report)
}

pub fn transclip(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let adapter = transclip::TransClip {
        text_weight: case.number("lambda_y_hat")?,
        graph_weight: case.number("lambda_laplacian")?,
        neighbours: case.count("n_neighbors")?,
        rounds: case.count("max_iter")?,
        ..transclip::TransClip::default()
    };
    let mut report = Report::of(case);
    for fit in fits(&mut report, task.class_count(), |images| adapter.fit(&task, images))? {
        report.real("sigma", fit.variances.data());
    }
    Ok(report)
}
