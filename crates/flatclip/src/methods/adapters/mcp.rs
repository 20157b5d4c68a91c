//! MCP: caches of certain, of aligned and of doubtful images, answered with text, memory and prototypes together.
//! Golden cases: `mcp-*`.

use super::prelude::*;
use crate::methods::cache::{ClassCache, Item, features};
use crate::methods::prototypes::{Prototypes, Visual, add_scaled, class_means, info_nce};
pub use crate::methods::query::Represented;
use crate::methods::query::{normalised_entropy, read_out};
use flatclip_tensor::ops::l2_norm;
use rayon::prelude::*;

pub static SPEC: AdapterSpec = AdapterSpec {
    summary: "caches of certain, aligned and doubtful images; text, memory and prototypes answer together",
    docs: "\
What: view 0 enters the entropy cache of its class k. The views of lowest entropy vote by mean probability
for a class a; view 0 enters the align cache of a, when full only if it is both more certain than the last
item and nearer to center * prototype + (1 - center) * text feature. The rows of both caches are the memory
of a class, their mean its prototype. An image of middling entropy is answered again with the entropy cache
and goes into the negative cache, or, now certain, into the entropy cache of that class.
  proto = softmax(z + alpha sum_k exp(-beta (1 - x.prototype_k)) onehot(k) - negative cache, as tda)
  cache = softmax(s f_0.c), c_k = normalise(sum_r exp(-memory_beta (1 - f_0.r)) r) over memory and text
  answer ~ mean probability of the voting views + cache_weight cache + proto_weight proto
The original searches both weights ON THE TEST LABELS and reports the best; here they are given, 1 unless
said otherwise, so numbers are below the published ones.
variant = \"mcp++\" also moves residuals of text and prototypes by one gradient step for each image, as the
authors' code does, with its oddities: cache terms count once per step and once more, and InfoNCE contrasts
feature dimensions instead of classes.
Online: the answer depends on the images before it, and on their order.
Cost: one image-tower pass over the views; (align_capacity + capacity + 1) K D per image, which is also the
memory; mcp++ adds a D x D product over the classes of the cache.
Reference: Chen et al., Multi-Cache Enhanced Prototype Learning for Test-Time Generalization of
Vision-Language Models, ICCV 2025. Verified with the authors' code, apart from the search.
",
    verified: Verified::AuthorsCode,
    presets: presets::mcp,
    options: Config::OPTIONS,
    ..AdapterSpec::new("mcp", Build::Online(|table| Ok(Box::new(Mcp::new(Config::read(table)?)))))
};

crate::choices! {
    /// With or without gradient steps.
    pub enum Variant {
        /// Without.
        Mcp = "mcp",
        /// One or more steps on residuals for each image, as the authors' code does.
        McpPlusPlus = "mcp++",
    }
}

crate::options! {
    pub struct Config for "mcp", check Config::windows_are_open {
        include view_selection;
        include data_preset;
        /// With or without gradient steps.
        variant: Variant = Variant::Mcp, from "authors' scripts";
        /// What represents the image in the entropy cache: view 0, or the mean of its confident views.
        query: Represented = Represented::View0, from "authors' code for all sets but ImageNet-A";
        /// Weight of the prototypes.
        alpha: f64 = 5.5, range at_least(0.0), from "authors' ImageNet value";
        /// Sharpness of the prototypes.
        beta: f64 = 8.0, range at_least(0.0), from "authors' ImageNet value";
        /// Items per class of the entropy cache.
        capacity: usize = 10, alias "entropy_shot", range between(1, 10_000), from "authors' code";
        /// Items per class of the align cache.
        align_capacity: usize = 10, alias "align_shot", range between(1, 10_000), from "authors' code";
        /// Weight of the prototype in the centre of a class.
        center: f64 = 0.8, range between(0.0, 1.0), from "authors' code";
        /// Sharpness of the memory's read-out.
        memory_beta: f64 = 5.5, range at_least(0.0), from "authors' code";
        include negative_cache { negative_capacity = 3, from "authors' code"; };
        /// Weight of the memory in the answer.
        cache_weight: f64 = 1.0, range at_least(0.0), from "choice: the original searches it on the test labels";
        /// Weight of the prototypes in the answer.
        proto_weight: f64 = 1.0, range at_least(0.0), from "choice: the original searches it on the test labels";
        /// AdamW steps per image of mcp++.
        steps: usize = 1, range up_to(1000), from "authors' code";
        /// AdamW's rate for the text residual of mcp++.
        lr_text: f64 = 6e-5, range at_least(0.0), from "authors' ImageNet value";
        /// AdamW's rate for the residual of the prototypes of mcp++.
        lr_image: f64 = 6e-5, range at_least(0.0), from "authors' ImageNet value";
        /// Weight of InfoNCE of mcp++.
        align: f64 = 0.5, range at_least(0.0), from "authors' code";
        /// Weight of the distance to the negative cache of mcp++.
        repel: f64 = 0.2, range at_least(0.0), from "authors' code";
    }
}

doubt!(Config);

impl Config {
    fn lowest(&self) -> LowestScore {
        LowestScore { fraction: self.fraction, score: self.score }
    }
}

/// Where an image of middling entropy went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondLook {
    /// It was not looked at again, or nothing came of it.
    None,
    /// Into the negative cache.
    Negative,
    /// Into the entropy cache, under the class of the second look.
    Certain,
}

/// The probabilities of one image from each part.
#[derive(Clone, Debug)]
pub struct Parts {
    /// By its confident views.
    pub text: Vec<f64>,
    /// By the memory, with the image in it.
    pub cache: Vec<f64>,
    pub proto: Vec<f64>,
    /// What represented it in the entropy cache.
    pub query: Query,
    /// The class under which it was offered to the align cache, and its uncertainty there.
    pub aligned: (usize, f32),
    pub second_look: SecondLook,
    pub tuning: Option<Tuning>,
    selection: Selection,
    views: ViewLogits,
}

#[derive(Clone, Debug, Default)]
pub struct Mcp {
    options: Config,
    /// By entropy.
    pub certain: ClassCache,
    pub aligned: ClassCache,
    pub negative: ClassCache,
    /// Of each class the rows of both caches when they were last joined.
    memory: Vec<Vec<Vec<f32>>>,
}

impl Mcp {
    pub fn new(options: Config) -> Self {
        Self { options, ..Self::default() }
    }

    pub fn prototypes(&self, width: usize) -> (Matrix, Vec<usize>) {
        class_means(self.memory.iter().map(|rows| rows.iter().map(Vec::as_slice)).enumerate(), width)
    }

    fn visual<'p>(&self, rows: &'p Matrix, classes: &'p [usize]) -> Visual<'p> {
        Visual { rows, classes, alpha: self.options.alpha, beta: self.options.beta }
    }

    /// Offers view 0 to the align cache: when full, it must be both more certain and nearer to the centre than the last item.
    fn align(&mut self, task: &Task, class: usize, item: Item) {
        let full = self.aligned.items(class).len() >= self.options.align_capacity;
        if let Some(last) = self.aligned.items(class).last().filter(|_| full) {
            let text = task.text_features().row(class);
            let rows = self.memory[class].iter().map(Vec::as_slice);
            let (prototype, _) = class_means([(class, rows)].into_iter(), text.len());
            let weight = if prototype.rows() == 0 { 0.0 } else { self.options.center };
            let mut center: Vec<f64> = text.iter().map(|&t| (1.0 - weight) * f64::from(t)).collect();
            center.iter_mut().zip(prototype.data()).for_each(|(c, &p)| *c += weight * f64::from(p));
            let distance = |x: &[f32]| x.iter().zip(&center).map(|(&x, c)| (f64::from(x) - c).powi(2)).sum::<f64>();
            if distance(&item.feature) >= distance(&last.feature) {
                return;
            }
        }
        self.aligned.insert(class, item);
    }

    /// Makes the memory of a class the rows of both caches.
    fn join(&mut self, class: usize) {
        let rows = self.aligned.items(class).iter().chain(self.certain.items(class));
        self.memory[class] = rows.map(|item| item.feature.clone()).collect();
    }

    /// Looks again, with the entropy cache, at an image of middling entropy.
    fn look_again(&mut self, task: &Task, query: &Query) -> SecondLook {
        let classes = task.class_count();
        let doubt = self.options.doubt();
        if !doubt.holds(query.entropy, classes) {
            return SecondLook::None;
        }
        let x = Matrix::from_vec(1, query.feature.len(), query.feature.clone());
        let mut z = to_f64(task.logits(&x).row(0));
        self.certain.add_affinity(&mut z, &query.feature, self.options.alpha, self.options.beta);
        let z = to_f32(&z);
        let (class, uncertainty) = (argmax(&z), entropy(&z));
        let item = |probabilities| Item { feature: query.feature.clone(), uncertainty, probabilities };
        if doubt.holds(uncertainty, classes) {
            self.negative.insert(class, item(softmax_f32(&z)));
            SecondLook::Negative
        } else if f64::from(normalised_entropy(uncertainty, classes)) <= self.options.entropy_low {
            self.certain.insert(class, item(Vec::new()));
            SecondLook::Certain
        } else {
            SecondLook::None
        }
    }

    /// The term of the doubtful images in the logits.
    fn against(&self, x: &[f32], classes: usize) -> Vec<f64> {
        let mut term = vec![0.0; classes];
        self.negative.subtract_doubt(&mut term, x, &self.options.doubt());
        term
    }

    /// The next image: it enters the caches, then everything is read.
    pub fn read(&mut self, task: &Task, image: &ViewSet<'_>) -> Parts {
        let (features, o) = (image.features, self.options.clone());
        let views = ViewLogits::of(task, image);
        let selection = o.lowest().select(&views);
        let query = o.query.query(features, &views, &selection);
        let vote = mean_probability(&views.logits, &selection.selected);
        let class = argmax(&vote);
        let uncertainty = -vote.iter().map(|p| p * p.max(1e-8).ln()).sum::<f64>() as f32;
        self.certain.insert(query.prediction, Item::of(&query));
        let item = Item { feature: features.row(0).to_vec(), uncertainty, probabilities: Vec::new() };
        self.align(task, class, item);
        self.join(query.prediction);
        self.join(class);
        let second_look = self.look_again(task, &query);

        let (prototypes, classes) = self.prototypes(features.cols());
        let against = self.against(&query.feature, vote.len());
        let tuning =
            (o.variant == Variant::McpPlusPlus).then(|| self.tuned(task, &query, &against, &prototypes, &classes));
        let (z, text) = match &tuning {
            Some(tuning) => {
                let tuned = ViewLogits::from_logits(logits(features, &tuning.text, task.logit_scale));
                let kept = o.lowest().select(&tuned).selected;
                (tuning.logits.clone(), mean_probability(&tuned.logits, &kept))
            }
            None => (self.visual(&prototypes, &classes).add(&query.logits, &query.feature).0, vote),
        };
        let z: Vec<f32> = z.iter().zip(&against).map(|(&z, a)| (f64::from(z) + a) as f32).collect();
        let cache = self.remembered(task, features.row(0));
        let aligned = (class, uncertainty);
        Parts { text, cache, proto: softmax(&z), query, aligned, second_look, tuning, selection, views }
    }

    /// Probabilities of view 0 from the memory.
    fn remembered(&self, task: &Task, feature: &[f32]) -> Vec<f64> {
        let of_class = |class: usize| {
            let mut rows = Matrix::from_vec(self.memory[class].len(), feature.len(), self.memory[class].concat());
            normalise_rows(&mut rows);
            let rows = rows.iter_rows().chain([task.text_features().row(class)]);
            read_out(feature, rows, self.options.memory_beta) * task.logit_scale
        };
        let logits: Vec<f32> = (0..self.memory.len()).into_par_iter().map(of_class).collect();
        softmax(&logits)
    }

    /// The weighted sum of the parts, not scaled to 1.
    pub fn combine(&self, parts: &Parts) -> Vec<f64> {
        let weighted = parts.text.iter().zip(&parts.cache).zip(&parts.proto);
        weighted.map(|((t, c), p)| t + self.options.cache_weight * c + self.options.proto_weight * p).collect()
    }
}

impl OnlineAdapter for Mcp {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        let (o, classes) = (&self.options, task.class_count());
        self.certain = ClassCache::new(classes, o.capacity);
        self.aligned = ClassCache::new(classes, o.align_capacity);
        self.negative = ClassCache::new(classes, o.negative_capacity);
        self.memory = vec![Vec::new(); classes];
        Ok(())
    }

    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let parts = self.read(task, image);
        let answer = self.combine(&parts);
        Ok(Decision::from_votes(&answer, argmax(&answer)).answer(parts.views.explain(parts.selection)))
    }
}

// mcp++: gradient steps on residuals of the text features and of the prototypes, as the authors' code does them.

/// Temperature of InfoNCE (authors' code).
const TEMPERATURE: f64 = 0.01;
/// Keeps the logarithm of a distance finite (authors' code).
const SMALL: f64 = 1e-7;

#[derive(Clone, Debug)]
pub struct Tuning {
    /// Logits with all terms of the prototypes, and all but the last of the negative cache.
    pub logits: Vec<f32>,
    pub text: Matrix,
    pub loss: f32,
    /// InfoNCE in it, without its weight.
    pub info_nce: f32,
    /// The distance to the negative cache in it, without its weight.
    pub repel: f32,
}

impl Mcp {
    /// The steps on one image. The logits are never reset, so that each step adds the terms of the caches once more, and the
    /// gradients of the earlier terms are those of their own step.
    fn tuned(&self, task: &Task, query: &Query, against: &[f64], prototypes: &Matrix, classes: &[usize]) -> Tuning {
        let o = &self.options;
        let adamw = |lr| AdamWSettings { lr, betas: (0.9, 0.999), eps: 1e-3, weight_decay: 0.1 };
        let mut text = Prototypes::new(task.text_features().clone(), adamw(o.lr_text));
        let mut image = Prototypes::new(prototypes.clone(), adamw(o.lr_image));
        let start = text.unit();
        let doubtful = self.doubtful(classes, query.feature.len());
        // Of every term of the prototypes so far: the prototypes of its step, their norms, its weights.
        let mut terms: Vec<(Matrix, Vec<f32>, Vec<f64>)> = Vec::new();
        let mut out =
            Tuning { logits: query.logits.clone(), text: Matrix::default(), loss: 0.0, info_nce: 0.0, repel: 0.0 };
        for _ in 0..o.steps {
            let ((w, w_norms), (v, v_norms)) = (text.unit(), image.unit());
            let (z, weights) = self.visual(&v, classes).add(&out.logits, &query.feature);
            out.logits = z.iter().zip(against).map(|(&z, a)| (f64::from(z) + a) as f32).collect();
            terms.push((v.clone(), v_norms.clone(), weights));
            let loss = mean_entropy(&Matrix::from_vec(1, out.logits.len(), out.logits.clone()));
            let slope = loss.gradient.row(0);

            let (mut dw, mut dv) = (Matrix::zeros(w.rows(), w.cols()), Matrix::zeros(v.rows(), v.cols()));
            let near = dimensions_apart(o.align, &v, &w, classes, &mut dv, &mut dw);
            let repel = repelled(o.repel, &v, &doubtful, &mut dv);
            normalise_rows_gradient(&w, &w_norms, &mut dw);
            normalise_rows_gradient(&v, &v_norms, &mut dv);
            // The logits of the text are those of the first step.
            let mut of_logits = Matrix::zeros(w.rows(), w.cols());
            for (k, &slope) in slope.iter().enumerate() {
                add_scaled(of_logits.row_mut(k), f64::from(slope * task.logit_scale), &query.feature);
            }
            normalise_rows_gradient(&start.0, &start.1, &mut of_logits);
            add(&mut dw, &of_logits);
            for (rows, norms, weights) in &terms {
                let mut of_term = self.visual(rows, classes).gradient(slope, &query.feature, weights);
                normalise_rows_gradient(rows, norms, &mut of_term);
                add(&mut dv, &of_term);
            }
            text.step_on(&dw);
            image.step_on(&dv);
            (out.info_nce, out.repel) = (near as f32, repel as f32);
            out.loss = (f64::from(loss.value) + o.align * near + o.repel * repel) as f32;
        }
        out.logits = self.visual(&image.unit().0, classes).add(&out.logits, &query.feature).0;
        out.text = text.unit().0;
        out
    }

    /// Mean feature of the negative cache for each of the classes, zero for none.
    fn doubtful(&self, classes: &[usize], width: usize) -> Matrix {
        let mut rows = Matrix::zeros(classes.len(), width);
        for (row, &class) in classes.iter().enumerate() {
            let (mean, present) = class_means([(class, features(self.negative.items(class)))].into_iter(), width);
            if !present.is_empty() {
                rows.row_mut(row).copy_from_slice(mean.row(0));
            }
        }
        rows
    }
}

fn add(sum: &mut Matrix, other: &Matrix) {
    sum.data_mut().iter_mut().zip(other.data()).for_each(|(s, x)| *s += x);
}

/// InfoNCE of the original, which is given `[D, C]` matrices: the rows that it contrasts are feature dimensions. Adds the
/// gradient of `weight` times it.
fn dimensions_apart(weight: f64, v: &Matrix, w: &Matrix, classes: &[usize], dv: &mut Matrix, dw: &mut Matrix) -> f64 {
    let (mut a, mut b) = (v.transpose(), w.select_rows(classes).transpose());
    let (a_norms, b_norms) = (normalise_rows(&mut a), normalise_rows(&mut b));
    let (mut da, mut db) = (Matrix::zeros(a.rows(), a.cols()), Matrix::zeros(b.rows(), b.cols()));
    let all: Vec<usize> = (0..a.rows()).collect();
    let loss = info_nce(1.0, TEMPERATURE, (&a, &b), &all, (&mut da, &mut db));
    normalise_rows_gradient(&a, &a_norms, &mut da);
    normalise_rows_gradient(&b, &b_norms, &mut db);
    let (da, db) = (da.transpose(), db.transpose());
    for (row, &class) in classes.iter().enumerate() {
        add_scaled(dv.row_mut(row), weight, da.row(row));
        add_scaled(dw.row_mut(class), weight, db.row(row));
    }
    loss
}

/// `mean_k -ln(1 - cos(v_k, n_k) + small)`; adds the gradient of `weight` times it at unit `v`.
fn repelled(weight: f64, v: &Matrix, doubtful: &Matrix, dv: &mut Matrix) -> f64 {
    let count = v.rows().max(1) as f64;
    let mut loss = 0.0;
    for (row, other) in doubtful.iter_rows().enumerate() {
        let length = l2_norm(other);
        if length == 0.0 {
            loss -= (1.0 + SMALL).ln() / count;
            continue;
        }
        let gap = 1.0 - dot(v.row(row), other) / length + SMALL;
        loss -= gap.ln() / count;
        add_scaled(dv.row_mut(row), weight / (gap * length * count), other);
    }
    loss
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::adapters::registry_tests::assert_gradient_within;

    #[test]
    fn a_full_align_cache_takes_only_what_is_surer_and_nearer() {
        let task = task(2, 8, 30.0);
        let mut mcp = ready(Mcp::new(Config { align_capacity: 1, ..Config::default() }), &task);
        let (near, far) = (task.text_features().row(0).to_vec(), task.text_features().row(1).to_vec());
        let item =
            |feature: &[f32], uncertainty| Item { feature: feature.to_vec(), uncertainty, probabilities: vec![] };
        mcp.align(&task, 0, item(&far, 0.5));
        mcp.align(&task, 0, item(&near, 0.9));
        assert_eq!(mcp.aligned.items(0)[0].uncertainty, 0.5, "nearer, but less sure");
        mcp.align(&task, 0, item(&near, 0.4));
        mcp.align(&task, 0, item(&far, 0.1));
        assert_eq!(mcp.aligned.items(0)[0].uncertainty, 0.4, "surer, but farther");
    }

    #[test]
    fn an_empty_window_is_refused() {
        assert!(Config::read(&toml::toml! { mask_low = 1.5 }).unwrap_err().to_string().starts_with("mcp.mask_low"));
    }

    #[test]
    fn both_gradients_match_differences() {
        let (v, w, other) = (unit_rows(1, 3, 4), unit_rows(2, 5, 4), unit_rows(3, 3, 4));
        let classes = [0, 2, 3];
        let value = |v: &Matrix, w: &Matrix| {
            let (mut dv, mut dw) = (Matrix::zeros(3, 4), Matrix::zeros(5, 4));
            let near = dimensions_apart(0.01, v, w, &classes, &mut dv, &mut dw);
            let far = repelled(0.2, v, &other, &mut dv);
            (0.01 * near + 0.2 * far, dv, dw)
        };
        let (_, dv, dw) = value(&v, &w);
        assert_gradient_within(&v, dv.data(), 1e-3, |slope| 2e-2 * slope.abs().max(0.5), |v| value(v, &w).0);
        assert_gradient_within(&w, dw.data(), 1e-3, |slope| 2e-2 * slope.abs().max(0.5), |w| value(&v, w).0);
    }
}
