//! What StatA and TransCLIP share: a set of images with soft labels, a graph of its nearest neighbours, and the rounds in
//! which labels and Gaussians of the classes follow each other.

use super::prelude::*;
use super::transclip::TransClip;
use flatclip_tensor::gemm::product_nt;
use rayon::prelude::*;

/// The temperature of both methods, a constant of the authors' code: it divides what Gaussians and neighbours say, and
/// multiplies the weight of the neighbours.
const TEMPERATURE: f64 = 50.0;
/// Rounds in which labels follow their neighbours, with the Gaussians as they are.
const INNER_ROUNDS: usize = 5;
/// Rows of the similarity matrix that are in memory together.
const BLOCK: usize = 256;

crate::option_group! {
    ($) pub(super) transductive {
        /// Images of a set; 0 for the whole stream.
        batch: usize = 0, from "authors' code: 64, 1000 or all";
        /// Power of the zero-shot answer.
        text_weight: f64 = 1.0, alias "lambda_y_hat", range at_least(0.0), from "authors' code";
        /// Weight of the neighbours.
        graph_weight: f64 = 1.0, alias "lambda_laplacian", range at_least(0.0), from "authors' code";
        /// Neighbours of an image.
        neighbours: usize = 3, range at_least(1), from "authors' code";
        /// Rounds in which labels and classes follow each other.
        rounds: usize = 10, alias "max_iter", range up_to(10_000), from "authors' code";
    }
}

/// The Gaussians of the classes: means `[K, D]`, and variances `[K, D]`, or `[1, D]` for all classes.
pub(super) type Gaussians = (Matrix, Matrix);

#[derive(Clone, Debug)]
pub struct Fit {
    /// Zero-shot probabilities `[N, K]`.
    pub zero_shot: Vec<f64>,
    /// Labels after the first round, `[N, K]`.
    pub first: Vec<f64>,
    /// Labels at the end, `[N, K]`.
    pub labels: Vec<f64>,
    /// Class means `[K, D]`, unit-norm.
    pub means: Matrix,
    /// Variances `[K, D]`; `[1, D]` of TransCLIP.
    pub variances: Matrix,
    /// Share of the images in mean and variance of every class; empty for TransCLIP.
    pub betas: Vec<f64>,
    pub neighbours: Vec<Vec<usize>>,
}

/// A set of images: view 0 of each, unit-norm, and what the text features say of it.
pub(super) struct Members {
    /// `[N, D]`.
    pub(super) features: Matrix,
    /// Zero-shot probabilities `[N, K]`.
    pub(super) zero_shot: Vec<f64>,
    /// Neighbours of every image and their cosines, nearest first.
    graph: Vec<Vec<(usize, f32)>>,
    /// The transposed graph: who has an image as a neighbour.
    followers: Vec<Vec<(usize, f32)>>,
    classes: usize,
}

impl Members {
    pub(super) fn new(task: &Task, images: &[ViewSet<'_>], neighbours: usize) -> Self {
        let width = task.text_features().cols();
        let rows = images.iter().flat_map(|image| image.features.row(0).to_vec()).collect();
        let features = Matrix::from_vec(images.len(), width, rows);
        let zero_shot = task.logits(&features);
        let graph = graph(&features, neighbours);
        let mut followers = vec![Vec::new(); images.len()];
        for (row, list) in graph.iter().enumerate() {
            list.iter().for_each(|&(other, cosine)| followers[other].push((row, cosine)));
        }
        let zero_shot = zero_shot.iter_rows().flat_map(softmax).collect();
        Self { features, zero_shot, graph, followers, classes: task.class_count() }
    }

    /// Labels and Gaussians in turn, by options that both methods have: `exponents` gives `[N, K]` for Gaussians, `refit` new Gaussians for labels.
    pub(super) fn fit(
        &self,
        labelling: &TransClip,
        (mut means, mut variances): Gaussians,
        exponents: impl Fn(&Matrix, &Matrix) -> Matrix,
        mut refit: impl FnMut(&[f64]) -> Gaussians,
    ) -> Fit {
        let (mut z, mut first) = (self.zero_shot.clone(), Vec::new());
        for round in 0..=labelling.rounds {
            z = self.labels(&z, &exponents(&means, &variances), labelling);
            if round == 0 {
                first.clone_from(&z);
            }
            if round < labelling.rounds {
                (means, variances) = refit(&z);
            }
        }
        let neighbours = self.graph.iter().map(|list| list.iter().map(|n| n.0).collect()).collect();
        Fit { zero_shot: self.zero_shot.clone(), first, labels: z, means, variances, betas: Vec::new(), neighbours }
    }

    /// New labels `[N, K]` from the exponents of the Gaussians (`[N, K]`) and from the neighbours' labels `z`.
    fn labels(&self, z: &[f64], gaussians: &Matrix, labelling: &TransClip) -> Vec<f64> {
        let (classes, text_weight) = (self.classes, labelling.text_weight);
        let factor = labelling.graph_weight * TEMPERATURE / (2.0 * labelling.neighbours as f64);
        let mut z = z.to_vec();
        for _ in 0..INNER_ROUNDS {
            let mut next = vec![0.0; z.len()];
            next.par_chunks_exact_mut(classes).enumerate().for_each(|(at, out)| {
                out.iter_mut().zip(gaussians.row(at)).for_each(|(o, &g)| *o = f64::from(g));
                for &(other, cosine) in self.graph[at].iter().chain(&self.followers[at]) {
                    let weight = factor * f64::from(cosine);
                    out.iter_mut().zip(&z[other * classes..]).for_each(|(o, z)| *o += weight * z);
                }
                let top = out.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let own = &self.zero_shot[at * classes..][..classes];
                let said = |(o, y): (&mut f64, &f64)| *o = y.powf(text_weight) * ((*o - top) / TEMPERATURE).exp();
                out.iter_mut().zip(own).for_each(said);
                let sum = out.iter().sum::<f64>().max(f64::MIN_POSITIVE);
                out.iter_mut().for_each(|o| *o /= sum);
            });
            z = next;
        }
        z
    }

    /// For every class the sum of its labels, and the sum of features weighted by them (`[K, D]`).
    pub(super) fn class_sums(&self, z: &[f64]) -> (Vec<f64>, Vec<Vec<f64>>) {
        let of_class = |class: usize| {
            let (mut total, mut sum) = (0.0, vec![0.0; self.features.cols()]);
            for (row, weight) in self.features.iter_rows().zip(z.iter().skip(class).step_by(self.classes)) {
                total += weight;
                sum.iter_mut().zip(row).for_each(|(s, &x)| *s += weight * f64::from(x));
            }
            (total, sum)
        };
        (0..self.classes).into_par_iter().map(of_class).unzip()
    }

    /// For every class the sum over images of label times squared distance from its mean, per dimension.
    pub(super) fn class_squares(&self, z: &[f64], means: &Matrix) -> Vec<Vec<f64>> {
        let of_class = |class: usize| {
            let mean = means.row(class);
            let mut sum = vec![0.0; self.features.cols()];
            for (row, weight) in self.features.iter_rows().zip(z.iter().skip(class).step_by(self.classes)) {
                for ((s, &x), &m) in sum.iter_mut().zip(row).zip(mean) {
                    *s += weight * f64::from(x - m) * f64::from(x - m);
                }
            }
            sum
        };
        (0..self.classes).into_par_iter().map(of_class).collect()
    }

    /// `sum_ik z_ik (x_id - m_kd)^2 / N`, at least `floor`: a dimension in which nothing differs would divide by zero.
    pub(super) fn shared_variance(&self, z: &[f64], means: &Matrix, floor: f64) -> Vec<f32> {
        let count = self.features.rows().max(1) as f64;
        let mut sum = vec![0.0f64; means.cols()];
        for squares in self.class_squares(z, means) {
            sum.iter_mut().zip(squares).for_each(|(s, q)| *s += q);
        }
        sum.into_iter().map(|s| (s / count).max(floor) as f32).collect()
    }
}

/// The labels `z` as answers.
pub(super) fn answers(task: &Task, images: &[ViewSet<'_>], z: &[f64]) -> Vec<Decision> {
    let labels = z.chunks_exact(task.class_count());
    images.iter().zip(labels).map(|(image, row)| Decision::of_first_view(task, image, row)).collect()
}

/// `-1/2 sum_d (x_d - mu_kd)^2 / s_kd` for all images and classes, `[N, K]`; `variances` has one row for all classes or one
/// for each.
pub(super) fn exponents(features: &Matrix, means: &Matrix, variances: &Matrix) -> Matrix {
    let (count, width, classes) = (features.rows(), features.cols(), means.rows());
    // The square is written out, so that products of matrices do the work.
    let squares: Vec<f32> = features.data().iter().map(|x| x * x).collect();
    let (mut inverse, mut scaled, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for class in 0..classes {
        let variance = variances.row(class.min(variances.rows() - 1));
        inverse.extend(variance.iter().map(|s| 1.0 / s));
        scaled.extend(means.row(class).iter().zip(variance).map(|(m, s)| m / s));
        let square = |(&m, &s): (&f32, &f32)| f64::from(m) * f64::from(m) / f64::from(s);
        own.push(means.row(class).iter().zip(variance).map(square).sum::<f64>() as f32);
    }
    let (mut first, mut second) = (vec![0.0; count * classes], vec![0.0; count * classes]);
    product_nt(&squares, count, &inverse, classes, width, &mut first);
    product_nt(features.data(), count, &scaled, classes, width, &mut second);
    let entry = |(at, (a, b)): (usize, (f32, f32))| -0.5 * (a - 2.0 * b + own[at % classes]);
    let all = first.into_iter().zip(second).enumerate().map(entry).collect();
    Matrix::from_vec(count, classes, all)
}

/// The `neighbours` largest inner products of every row with the others, descending. The largest of all is skipped: the row
/// itself, as in the authors' code.
fn graph(features: &Matrix, neighbours: usize) -> Vec<Vec<(usize, f32)>> {
    let (count, width) = (features.rows(), features.cols());
    let mut out = Vec::with_capacity(count);
    for block in features.data().chunks(BLOCK * width) {
        let rows = block.len() / width;
        let mut products = vec![0.0f32; rows * count];
        product_nt(block, rows, features.data(), count, width, &mut products);
        out.par_extend(products.par_chunks_exact(count).map(|row| {
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
            order.into_iter().skip(1).take(neighbours).map(|other| (other, row[other])).collect::<Vec<_>>()
        }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_those_of_the_definition() {
        let (x, means) = (unit_rows(1, 5, 6), unit_rows(2, 3, 6));
        let mut variances = unit_rows(3, 3, 6);
        variances.data_mut().iter_mut().for_each(|v| *v = v.abs() + 0.1);
        let found = exponents(&x, &means, &variances);
        for (i, row) in x.iter_rows().enumerate() {
            for class in 0..3 {
                let pairs = row.iter().zip(means.row(class)).zip(variances.row(class));
                let expected: f32 = pairs.map(|((x, m), s)| -0.5 * (x - m) * (x - m) / s).sum();
                assert!((found.row(i)[class] - expected).abs() < 1e-4);
            }
        }
    }

    #[test]
    fn an_image_is_not_its_own_neighbour() {
        let x = unit_rows(4, 300, 6);
        for (row, list) in graph(&x, 3).iter().enumerate() {
            assert!(list.len() == 3 && list.iter().all(|&(other, _)| other != row));
            assert!(list.is_sorted_by(|a, b| a.1 >= b.1));
        }
        assert!(graph(&x.select_rows(&[0]), 3)[0].is_empty());
    }
}
