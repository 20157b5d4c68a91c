//! A few labelled images per class: the training set of a tuner.
//!
//! The portable sampler draws each class on its own (keyed by seed and class name) from its items sorted by id, so the
//! set does not depend on directory order, on other classes, or on the platform, and the n-shot set is part of the
//! (n+1)-shot set. The Python sampler replays `random.sample` as Dassl calls it, over the data set's items in their order:
//! with the same seed these are CoOp's training shots where that order is fixed, by a split file or an image list (its ten
//! other data sets). On ImageNet CoOp's order inside a class is that of an unsorted directory listing; ours is sorted, so
//! the shots are others. Held-out images come from the rest of the training images, CoOp's from its validation split. An
//! explicit list wins over both.

use super::Dataset;
use super::mersenne::MersenneTwister;
use flatclip::error::Hint;
use flatclip::rng::Stream;
use flatclip::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Which sampler draws the shots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampler {
    /// Our own: sorted ids, one stream per class.
    #[default]
    Portable,
    /// CPython's Mersenne Twister, classes in order of first appearance, items in the data set's order, as Dassl draws.
    /// CoOp's training shots on the data sets with a fixed order of items; not on ImageNet.
    Python,
}

/// How many images of each class to draw.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FewShot {
    pub shots: usize,
    /// Further images per class, kept out of training, on which settings are chosen.
    pub held_out: usize,
    pub seed: u64,
    pub sampler: Sampler,
    /// Take what there is where a class has fewer images than asked for, instead of refusing.
    pub allow_fewer: bool,
}

/// What can be drawn from: one entry per image.
#[derive(Clone, Debug)]
pub(crate) struct Pool<'a> {
    /// The data set's name or folder, for messages.
    pub source: &'a str,
    pub ids: Vec<&'a str>,
    pub labels: Vec<usize>,
    pub classes: &'a [String],
}

/// Positions in the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shots {
    /// To train on, class after class.
    pub train: Vec<usize>,
    /// To choose settings on; disjoint from `train`.
    pub held_out: Vec<usize>,
}

impl FewShot {
    pub(crate) fn draw(&self, pool: &Pool<'_>) -> Result<Shots> {
        pool.check()?;
        let groups = pool.groups();
        self.check(pool, &groups)?;
        Ok(match self.sampler {
            Sampler::Portable => self.draw_portable(pool, &groups),
            Sampler::Python => self.draw_python(&groups),
        })
    }

    fn check(&self, pool: &Pool<'_>, groups: &[(usize, Vec<usize>)]) -> Result<()> {
        if self.shots == 0 {
            return Err(Error::config("shots", "expected at least 1 image per class, found 0"));
        }
        let missing: Vec<&str> =
            (0..pool.classes.len()).filter(|c| groups.iter().all(|g| g.0 != *c)).map(|c| &*pool.classes[c]).collect();
        if !missing.is_empty() {
            return Err(pool.error(format!("no image for {}; remove the class or add images", list(&missing))));
        }
        let need = self.shots + self.held_out;
        let few: Vec<String> = groups
            .iter()
            .filter(|(_, items)| items.len() < need)
            .map(|(label, items)| format!("{} ({})", pool.classes[*label], items.len()))
            .collect();
        if few.is_empty() || self.allow_fewer {
            return Ok(());
        }
        let few: Vec<&str> = few.iter().map(String::as_str).collect();
        let wanted = match self.held_out {
            0 => format!("{} shots", self.shots),
            held => format!("{} shots and {held} held-out images", self.shots),
        };
        let reason = format!("{wanted} per class were requested, but there are fewer images of {}", list(&few));
        Err(pool.error(reason).with_hint(Hint::FewerShots))
    }

    fn draw_portable(&self, pool: &Pool<'_>, groups: &[(usize, Vec<usize>)]) -> Shots {
        let mut shots = Shots::default();
        for (label, items) in groups {
            let mut items = items.clone();
            items.sort_by_key(|&item| pool.ids[item]);
            Stream::new(self.seed, &["few-shot", &pool.classes[*label]]).shuffle(&mut items);
            // Where there are fewer than asked for, training comes first.
            let train = self.shots.min(items.len());
            shots.train.extend(&items[..train]);
            shots.held_out.extend(items[train..].iter().take(self.held_out));
        }
        shots
    }

    /// Dassl draws the whole training set first, then the validation set, from one generator.
    fn draw_python(&self, groups: &[(usize, Vec<usize>)]) -> Shots {
        let mut python = MersenneTwister::new(self.seed);
        let mut draw = |items: &[usize], count: usize| -> Vec<usize> {
            python.sample(items.len(), count).into_iter().map(|i| items[i]).collect()
        };
        let train: Vec<Vec<usize>> = groups.iter().map(|(_, items)| draw(items, self.shots)).collect();
        let mut held_out = Vec::new();
        if self.held_out > 0 {
            for ((_, items), used) in groups.iter().zip(&train) {
                let rest: Vec<usize> = items.iter().copied().filter(|i| !used.contains(i)).collect();
                held_out.extend(draw(&rest, self.held_out));
            }
        }
        Shots { train: train.concat(), held_out }
    }
}

impl<'a> Pool<'a> {
    /// All samples of a data set.
    pub(crate) fn of(source: &'a str, dataset: &'a Dataset) -> Self {
        let (ids, labels) = dataset.samples.iter().map(|sample| (sample.id.as_str(), sample.label)).unzip();
        Self { source, ids, labels, classes: &dataset.classes }
    }

    fn error(&self, reason: String) -> Error {
        Error::Data { path: self.source.into(), reason }
    }

    fn check(&self) -> Result<()> {
        if let Some((at, label)) = self.labels.iter().enumerate().find(|(_, l)| **l >= self.classes.len()) {
            return Err(self.error(format!(
                "image {:?} has label {label}, but there are only {} class names (0 to {})",
                self.ids[at],
                self.classes.len(),
                self.classes.len().saturating_sub(1)
            )));
        }
        if self.classes.len() < 2 {
            return Err(self.error(format!(
                "{} class: there is nothing to tell apart; at least two classes are needed",
                self.classes.len()
            )));
        }
        Ok(())
    }

    /// Images of each label, labels in order of first appearance.
    fn groups(&self) -> Vec<(usize, Vec<usize>)> {
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut places = BTreeMap::new();
        for (at, &label) in self.labels.iter().enumerate() {
            let place = *places.entry(label).or_insert(groups.len());
            if place == groups.len() {
                groups.push((label, Vec::new()));
            }
            groups[place].1.push(at);
        }
        groups
    }

    /// The place of every id.
    fn places(&self) -> BTreeMap<&str, usize> {
        self.ids.iter().enumerate().map(|(at, &id)| (id, at)).collect()
    }

    /// The images whose ids the given paths end with: lists made on another machine name them by that machine's folders.
    pub(crate) fn with_paths(&self, list_file: &Path, paths: &[String]) -> Result<Vec<usize>> {
        self.check()?;
        let known = self.places();
        let find = |path: &String| {
            let ends = std::iter::once(0).chain(path.match_indices('/').map(|(at, _)| at + 1));
            let reason = || format!("no image of {} ends {path:?}; ids look like {:?}", self.source, self.ids.first());
            let found = ends.into_iter().find_map(|start| known.get(&path[start..]).copied());
            found.ok_or_else(|| Error::Data { path: list_file.to_path_buf(), reason: reason() })
        };
        paths.iter().map(find).collect()
    }

    /// The images an explicit list names: one id per line, empty lines and `#` comments skipped.
    pub(crate) fn listed(&self, list_file: &Path, text: &str) -> Result<Vec<usize>> {
        self.check()?;
        let known = self.places();
        let fault = |reason: String| Error::Data { path: list_file.to_path_buf(), reason };
        let mut picked = Vec::new();
        for (line, id) in text.lines().enumerate().map(|(n, l)| (n + 1, l.trim())) {
            if id.is_empty() || id.starts_with('#') {
                continue;
            }
            let (source, first) = (self.source, self.ids.first());
            let at = known
                .get(id)
                .ok_or_else(|| fault(format!("line {line}: no image {id:?} in {source}; ids look like {first:?}")))?;
            picked.push(*at);
        }
        if picked.is_empty() {
            return Err(fault("the list names no image".into()));
        }
        Ok(picked)
    }
}

/// At most five names, then a count.
fn list(names: &[&str]) -> String {
    match names.len() {
        0..=5 => names.join(", "),
        n => format!("{}, and {} more", names[..5].join(", "), n - 5),
    }
}

/// The samples of `shots` images per class that tuning draws for this seed; classes with fewer give all.
pub(crate) fn draw_shots(dataset: &Dataset, shots: usize, seed: u64) -> Result<Vec<usize>> {
    let source = if dataset.spec.is_empty() { &dataset.name } else { &dataset.spec };
    let few = FewShot { shots, held_out: 0, seed, sampler: Sampler::Portable, allow_fewer: true };
    Ok(few.draw(&Pool::of(source, dataset))?.train)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    static IDS: LazyLock<Vec<String>> = LazyLock::new(|| (0..30).map(|i| format!("img-{i:02}")).collect());

    fn classes() -> Vec<String> {
        ["cat", "dog", "hen"].map(String::from).to_vec()
    }

    /// Thirty images of these classes.
    fn pool(classes: &[String]) -> Pool<'_> {
        let labels = (0..30).map(|i| (i * 7 + 1) % 3).collect();
        Pool { source: "photos", ids: IDS.iter().map(String::as_str).collect(), labels, classes }
    }

    fn few(shots: usize, held_out: usize, sampler: Sampler) -> FewShot {
        FewShot { shots, held_out, seed: 1, sampler, allow_fewer: false }
    }

    #[test]
    fn the_portable_draw_does_not_depend_on_directory_order_and_nests() {
        let classes = classes();
        let draw = |pool: &Pool<'_>, shots| {
            let drawn = few(shots, 2, Sampler::Portable).draw(pool).unwrap();
            assert!(drawn.held_out.iter().all(|i| !drawn.train.contains(i)));
            let mut picked: Vec<String> = drawn.train.iter().map(|&i| pool.ids[i].to_owned()).collect();
            picked.sort();
            picked
        };
        let mut pool = pool(&classes);
        let (straight, fewer) = (draw(&pool, 4), draw(&pool, 3));
        pool.ids.reverse();
        pool.labels.reverse();
        assert_eq!(straight, draw(&pool, 4));
        assert!(fewer.iter().all(|id| straight.contains(id)));
    }

    #[test]
    fn the_python_draw_is_that_of_dassl() {
        let drawn = few(4, 2, Sampler::Python).draw(&pool(&classes())).unwrap();
        assert_eq!(drawn.train, [6, 3, 12, 0, 22, 28, 25, 16, 20, 11, 5, 26]);
        assert_eq!(drawn.held_out, [9, 21, 10, 13, 2, 17]);
    }

    #[test]
    fn too_few_images_are_named_and_can_be_allowed() {
        let classes = classes();
        let mut pool = pool(&classes);
        pool.labels.iter_mut().skip(9).filter(|l| **l == 2).for_each(|l| *l = 0);
        let message = few(5, 0, Sampler::Portable).draw(&pool).unwrap_err().to_string();
        assert!(message.contains("hen (3)"), "{message}");
        let drawn = FewShot { allow_fewer: true, ..few(5, 0, Sampler::Portable) }.draw(&pool).unwrap();
        assert_eq!(drawn.train.len(), 13);
    }

    #[test]
    fn one_class_an_empty_class_and_a_label_without_name_are_refused() {
        let classes = classes();
        for (labels, count, reason) in [
            (vec![0, 0], 1, "nothing to tell apart"),
            (vec![0, 1], 3, "no image for hen"),
            (pool(&classes).labels, 2, "label 2, but there are only 2 class names"),
        ] {
            let pool = Pool { labels, ..pool(&classes[..count]) };
            let message = few(1, 0, Sampler::Portable).draw(&pool).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
    }

    #[test]
    fn a_list_file_wins_and_its_faults_name_the_line() {
        let (classes, path) = (classes(), Path::new("shots.txt"));
        let pool = pool(&classes);
        assert_eq!(pool.listed(path, "# mine\nimg-03\n\nimg-00\n").unwrap(), [3, 0]);
        let message = pool.listed(path, "img-03\nimg-99\n").unwrap_err().to_string();
        assert!(message.contains("shots.txt: line 2") && message.contains("img-99"), "{message}");
        assert!(pool.listed(path, "# nothing\n").is_err());
        let elsewhere = ["/home/x/data/img-03".to_owned(), "img-00".to_owned()];
        assert_eq!(pool.with_paths(path, &elsewhere).unwrap(), [3, 0]);
        assert!(pool.with_paths(path, &["/data/other".to_owned()]).unwrap_err().to_string().contains("/data/other"));
    }
}
