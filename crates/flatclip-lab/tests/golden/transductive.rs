//! StatA and TransCLIP on sets of features `[B, N, D]`.

use super::case::{Case, Report};
use super::inputs::{close, feature_task, rounded, stream};
use flatclip::methods::ViewSet;
use flatclip::methods::adapters::{stata, transclip};
use flatclip::methods::probability::argmax;
use flatclip_tensor::Matrix;

/// The sets of a case: every image a matrix of one row.
fn sets(case: &Case) -> Result<Vec<Vec<Matrix>>, String> {
    let single = |set: &Matrix| (0..set.rows()).map(|row| set.select_rows(&[row])).collect();
    Ok(stream(case)?.iter().map(single).collect())
}

fn view_sets(set: &[Matrix]) -> Vec<ViewSet<'_>> {
    set.iter().map(|image| ViewSet::new("case", image)).collect()
}

/// The fits of all sets.
#[derive(Default)]
struct Found {
    zero_shot: Vec<f64>,
    first: Vec<f64>,
    labels: Vec<f64>,
    means: Vec<f32>,
    variances: Vec<f32>,
    betas: Vec<f64>,
    neighbours: Vec<usize>,
}

impl Found {
    fn new(case: &Case, fit: impl Fn(&[ViewSet<'_>]) -> stata::Fit) -> Result<Self, String> {
        let mut found = Self::default();
        for set in sets(case)? {
            let fit = fit(&view_sets(&set));
            found.zero_shot.extend(fit.zero_shot);
            found.first.extend(fit.first);
            found.labels.extend(fit.labels);
            found.means.extend(fit.means.into_vec());
            found.variances.extend(fit.variances.into_vec());
            found.betas.extend(fit.betas);
            found.neighbours.extend(fit.neighbours.concat());
        }
        Ok(found)
    }

    fn compare(&self, report: &mut Report, case: &Case, classes: usize) -> Result<(), String> {
        close(report, case, "y_hat", &rounded(&self.zero_shot))?;
        close(report, case, "z_first", &rounded(&self.first))?;
        close(report, case, "z", &rounded(&self.labels))?;
        close(report, case, "mu", &self.means)?;
        report.equal("neighbours", &self.neighbours, &case.indices("out.neighbours")?);
        let predictions: Vec<usize> = self.labels.chunks_exact(classes).map(argmax).collect();
        report.equal("pred", &predictions, &case.indices("out.pred")?);
        Ok(())
    }
}

pub fn stata(case: &Case) -> Result<Report, String> {
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
    let found = Found::new(case, |images| adapter.fit(&task, images))?;
    let mut report = Report::default();
    found.compare(&mut report, case, task.class_count())?;
    close(&mut report, case, "cov", &found.variances)?;
    close(&mut report, case, "beta", &rounded(&found.betas))?;
    Ok(report)
}

pub fn transclip(case: &Case) -> Result<Report, String> {
    let task = feature_task(case)?;
    let adapter = transclip::TransClip {
        text_weight: case.number("lambda_y_hat")?,
        graph_weight: case.number("lambda_laplacian")?,
        neighbours: case.count("n_neighbors")?,
        rounds: case.count("max_iter")?,
        ..transclip::TransClip::default()
    };
    let found = Found::new(case, |images| adapter.fit(&task, images))?;
    let mut report = Report::default();
    found.compare(&mut report, case, task.class_count())?;
    close(&mut report, case, "sigma", &found.variances)?;
    Ok(report)
}
