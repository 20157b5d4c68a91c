//! ECALP: label propagation over a graph of text features and all images seen so far. Golden cases: `ecalp-*`.

use super::prelude::*;
use flatclip_tensor::ops::l2_norm;
use rayon::prelude::*;

pub static SPEC: AdapterSpec = AdapterSpec {
    needs: Needs::FEATURES.with_views(1),
    summary: "label propagation from the class texts over a growing graph of all images seen so far",
    docs: "\
What: nodes are the classes' text features, every image seen so far (view 0), and the newest image once more
as the query. An image has edges to its image_neighbours nearest images, by u(x_j).x with u(x) = normalise(x
w) and w the variance of the text features over classes, and to its text_neighbours nearest texts, by
cosine; an edge weighs similarity^gamma. With W = A + A' normalised by the degrees, the labels of the images
are
  Y <- alpha W~ [I; Y] + (1 - alpha) Y0     `iterations` times,
Y0 a fifth of each image's best label at the image before. The answer is the query's row. Similarities are
weighted on one side only: on that of the earlier image. Equal similarities: the later node. The
probabilities are the scores over their sum; compat = true gives softmax(10000 score), which is nearly
one-hot and no probability.
Online: the answer depends on the images before it, and on their order. Nothing is forgotten.
Cost: one image-tower pass of one view; for image t, t D and iterations * t * (image_neighbours * 2 +
text_neighbours) * K; memory t (D + 2 K).
Reference: Li et al., Efficient and Context-Aware Label Propagation for Zero-/Few-Shot Training-Free
Adaptation of Vision-Language Model, ICLR 2025. Verified with the authors' code on streams without ties that
it leaves open.
",
    verified: Verified::AuthorsCode,
    options: Config::OPTIONS,
    ..AdapterSpec::new("ecalp", Build::Online(|table| Ok(Box::new(Ecalp::new(Config::read(table)?)))))
};

crate::options! {
    pub struct Config for "ecalp" {
        /// Texts that an image is joined to.
        text_neighbours: usize = 3, alias "k_text", range at_least(1), from "authors' code";
        /// Images that an image is joined to.
        image_neighbours: usize = 8, alias "k_image", range at_least(1), from "authors' code";
        /// Power of the similarities.
        gamma: f64 = 10.0, range above(0.0), from "authors' code";
        /// Share of the propagated labels; the rest stays what it was.
        alpha: f64 = 1.0, range between(0.0, 1.0), from "authors' code";
        /// Rounds of propagation.
        iterations: usize = 3, range between(1, 1000), from "authors' code";
        /// Give softmax(10000 score) instead of the scores over their sum.
        compat: bool = false, from "choice: the original's softmax is no probability";
    }
}

/// What is carried of an image's best label to the next image.
const CARRIED: f64 = 0.2;
/// Factor of the original's softmax.
const SHARPNESS: f64 = 10_000.0;
/// Beside a degree's root, as the original has it.
const SMALL: f64 = 1e-6;

/// An edge of the graph, to an image or to a text.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Edge {
    similarity: f64,
    node: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Ecalp {
    options: Config,
    /// Variance of the text features over classes, per dimension.
    weights: Vec<f32>,
    /// `u(x)` of every image.
    weighted: Vec<Vec<f32>>,
    /// Nearest images of every node, the query's list last; nearest first.
    lists: Vec<Vec<Edge>>,
    /// Nearest texts of every image.
    texts: Vec<Vec<Edge>>,
    /// Best class of every image and a fifth of its score.
    labels: Vec<(usize, f64)>,
}

/// Nearest first; of equals, the later node.
fn cut(list: &mut Vec<Edge>, length: usize) {
    list.sort_by(|a, b| b.similarity.total_cmp(&a.similarity).then(b.node.cmp(&a.node)));
    list.truncate(length);
}

/// Per-dimension variance over rows, divided by its norm; ones where there is none.
fn variance_weights(text: &Matrix) -> Vec<f32> {
    let rows = text.rows() as f64;
    let variance = |at: usize| {
        let mean = text.iter_rows().map(|row| f64::from(row[at])).sum::<f64>() / rows;
        text.iter_rows().map(|row| (f64::from(row[at]) - mean).powi(2)).sum::<f64>() / (rows - 1.0).max(1.0)
    };
    let all: Vec<f64> = (0..text.cols()).map(variance).collect();
    let norm = all.iter().map(|v| v * v).sum::<f64>().sqrt();
    if norm == 0.0 { vec![1.0; text.cols()] } else { all.iter().map(|v| (v / norm) as f32).collect() }
}

impl Ecalp {
    pub fn new(options: Config) -> Self {
        Self { options, ..Self::default() }
    }

    /// The next image: its scores, one per class.
    pub fn step(&mut self, task: &Task, x: &[f32]) -> Vec<f64> {
        self.grow(task, x);
        let used = self.options.image_neighbours.min(self.lists.len());
        let graph = Graph::new(&self.lists, used, &self.texts, task.class_count(), self.options.gamma);
        let mut rows = graph.propagate(&self.labels, self.options.iterations, self.options.alpha);
        let carried = |row: &Vec<f64>| {
            let best = argmax(row);
            (best, CARRIED * row[best])
        };
        let answer = rows.pop().unwrap_or_default();
        self.labels = rows.iter().map(carried).collect();
        answer
    }

    /// Adds the image as node `t`, and once more as the query `t + 1`.
    fn grow(&mut self, task: &Task, x: &[f32]) {
        let (t, nodes) = (self.weighted.len(), self.weighted.len() + 2);
        let mut own: Vec<f32> = x.iter().zip(&self.weights).map(|(x, w)| x * w).collect();
        let length = l2_norm(&own).max(f64::MIN_POSITIVE);
        own.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        self.weighted.push(own);
        let near: Vec<f64> = self.weighted.par_iter().map(|u| dot(u, x)).collect();
        let k = self.options.image_neighbours.min(nodes);
        // The lists are kept longer than they are used: the query leaves them with the next image.
        let depth = if t <= k { k } else { k + (t - k).min(2) };
        self.lists.pop();
        self.lists.par_iter_mut().zip(&near).for_each(|(list, &similarity)| {
            // Node t was the query until now.
            list.retain(|edge| edge.node != t);
            list.extend([t, t + 1].map(|node| Edge { similarity, node }));
            cut(list, depth);
        });
        let mut list: Vec<Edge> =
            near.iter().enumerate().map(|(node, &similarity)| Edge { similarity, node }).collect();
        list.push(Edge { similarity: near[t], node: t + 1 });
        cut(&mut list, if t == 0 { nodes } else { depth });
        self.lists.extend([list.clone(), list]);
        let mut texts: Vec<Edge> = task
            .text_features()
            .iter_rows()
            .enumerate()
            .map(|(node, row)| Edge { similarity: dot(x, row), node })
            .collect();
        cut(&mut texts, self.options.text_neighbours);
        self.texts.push(texts);
        self.labels.extend([(0, 0.0); 2]);
    }
}

/// The normalised graph of one moment: for every image its neighbours among the images, and among the texts.
struct Graph {
    classes: usize,
    images: Vec<Vec<(usize, f64)>>,
    texts: Vec<Vec<(usize, f64)>>,
}

impl Graph {
    fn new(lists: &[Vec<Edge>], used: usize, near_texts: &[Vec<Edge>], classes: usize, gamma: f64) -> Self {
        let power = |s: f64| if gamma.fract() == 0.0 { s.powi(gamma as i32) } else { s.max(0.0).powf(gamma) };
        let mut images: Vec<Vec<(usize, f64)>> = vec![Vec::new(); lists.len()];
        for (row, list) in lists.iter().enumerate() {
            for edge in &list[..used.min(list.len())] {
                let value = power(edge.similarity);
                images[row].push((edge.node, value));
                images[edge.node].push((row, value));
            }
        }
        // The query has the texts of the image whose copy it is.
        let of_row = |row: usize| &near_texts[row.min(near_texts.len() - 1)];
        let mut texts: Vec<Vec<(usize, f64)>> = (0..lists.len())
            .map(|row| of_row(row).iter().map(|edge| (edge.node, power(edge.similarity))).collect())
            .collect();
        let sum = |edges: &[(usize, f64)]| edges.iter().map(|e| e.1).sum::<f64>();
        let roots: Vec<f64> = images.iter().zip(&texts).map(|(i, t)| (sum(i) + sum(t)).sqrt() + SMALL).collect();
        let mut text_degrees = vec![0.0f64; classes];
        texts.iter().flatten().for_each(|&(class, value)| text_degrees[class] += value);
        for (row, root) in roots.iter().enumerate() {
            images[row].iter_mut().for_each(|(node, value)| *value /= root * roots[*node]);
            texts[row].iter_mut().for_each(|(class, value)| *value /= root * (text_degrees[*class].sqrt() + SMALL));
        }
        Self { classes, images, texts }
    }

    /// Scores of all images after `iterations` rounds from the carried labels.
    fn propagate(&self, labels: &[(usize, f64)], iterations: usize, alpha: f64) -> Vec<Vec<f64>> {
        let start = |&(class, value): &(usize, f64)| {
            let mut row = vec![0.0; self.classes];
            row[class] = value;
            row
        };
        let mut rows: Vec<Vec<f64>> = labels.iter().map(start).collect();
        for _ in 0..iterations {
            rows = (0..rows.len())
                .into_par_iter()
                .map(|at| {
                    let mut row = vec![0.0; self.classes];
                    for &(node, value) in &self.images[at] {
                        row.iter_mut().zip(&rows[node]).for_each(|(r, y)| *r += value * y);
                    }
                    self.texts[at].iter().for_each(|&(class, value)| row[class] += value);
                    row.iter_mut().for_each(|r| *r *= alpha);
                    row[labels[at].0] += (1.0 - alpha) * labels[at].1;
                    row
                })
                .collect();
        }
        rows
    }
}

fn probabilities(scores: &[f64], compat: bool) -> Vec<f64> {
    if compat {
        let logits: Vec<f32> = scores.iter().map(|s| (SHARPNESS * s) as f32).collect();
        return softmax(&logits);
    }
    let sum: f64 = scores.iter().sum();
    if !(sum.is_finite() && sum > 0.0) {
        return vec![1.0 / scores.len() as f64; scores.len()];
    }
    scores.iter().map(|s| s / sum).collect()
}

impl OnlineAdapter for Ecalp {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        *self = Self::new(self.options.clone());
        self.weights = variance_weights(task.text_features());
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let scores = self.step(task, image.features.row(0));
        Ok(Decision::of_first_view(task, image, &probabilities(&scores, self.options.compat)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_hold_the_nearest_of_all_images_and_never_an_old_query() {
        let task = task(4, 8, 30.0);
        let mut ecalp = ready(Ecalp::new(Config { image_neighbours: 3, ..Config::default() }), &task);
        let images: Vec<Matrix> = (0..12).map(|seed| views(seed, 1, 8)).collect();
        for image in &images {
            let scores = ecalp.step(&task, image.row(0));
            assert!(scores.iter().all(|s| s.is_finite() && *s >= 0.0) && scores.iter().sum::<f64>() > 0.0);
        }
        let nodes = images.len() + 1;
        assert_eq!((ecalp.lists.len(), ecalp.labels.len(), ecalp.texts.len()), (nodes, 12, 12));
        for list in &ecalp.lists {
            assert!(list.len() >= 3 && list.is_sorted_by(|a, b| a.similarity >= b.similarity));
            let mut seen: Vec<usize> = list.iter().map(|e| e.node).collect();
            seen.sort_unstable();
            seen.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1]));
            assert!(seen.iter().all(|&node| node < nodes));
        }
        assert_eq!(ecalp.lists[11], ecalp.lists[12]);
    }

    #[test]
    fn scores_become_probabilities() {
        assert_eq!(probabilities(&[1.0, 3.0], false), [0.25, 0.75]);
        assert_eq!(probabilities(&[0.0, 0.0], false), [0.5, 0.5]);
        assert!(probabilities(&[0.1, 0.11], true)[1] > 0.999);
    }
}
