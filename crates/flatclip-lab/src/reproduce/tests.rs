//! Runs every recipe of the paper on small data sets in the fifteen layouts, with a tiny random model.

use super::{Recipe, ReproduceRequest, State, plan, reproduce};
use crate::data::tree::put;
use crate::data::{KNOWN, OpenOptions, Split, open};
use crate::{TuneRequest, tune};
use flatclip::architecture::{ClipConfig, ImageConfig, TextConfig, TextForm, VitForm};
use flatclip::image::sheet::encode_png;
use flatclip::model::{Clip, LoadOptions};
use flatclip::settings::parse_settings;
use flatclip::text::Tokenizer;
use flatclip::text::imagenet::{WNIDS, WNIDS_A, WNIDS_R};
use flatclip::weights::{Checkpoint, random_of};
use flatclip::{Image, Model};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn tiny(vit: bool) -> Model {
    let pocket = Checkpoint::embedded("pocket").unwrap().unwrap();
    let image = if vit {
        ImageConfig::Vit { width: 16, layers: 3, heads: 1, patch: 16, mlp: 16, form: VitForm::CLIP }
    } else {
        pocket.config().image.clone()
    };
    let text =
        TextConfig { width: 16, layers: 3, heads: 1, context_length: 77, vocab: 49408, mlp: 16, form: TextForm::CLIP };
    let config = pocket.config().clone();
    let (embed_dim, image_size) = if vit { (16, 32) } else { (config.embed_dim, config.image_size) };
    let config = ClipConfig { embed_dim, image_size, image, text: Some(text), ..config };
    let clip = Clip::load(&random_of(&config, 1), LoadOptions::default()).unwrap();
    Model::from_parts("tiny", clip, Tokenizer::clip())
}

/// Images are links to a few files: a thousand classes cost no time to write.
struct ToyModel {
    folder: TempDir,
    images: Vec<PathBuf>,
}

impl ToyModel {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = |number: usize| {
            let rgb = (0..24 * 20 * 3).map(|i| ((i * (7 + 5 * number)) % 251) as u8).collect();
            let path = folder.path().join(format!("{number}.png"));
            std::fs::write(&path, encode_png(&Image { width: 24, height: 20, rgb }).unwrap()).unwrap();
            path
        };
        let images = (0..5).map(image).collect();
        let all = Self { folder, images };
        all.imagenets();
        all.splits();
        all
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn link(&self, file: &str, number: usize) {
        let path = self.root().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::hard_link(&self.images[number % self.images.len()], path).unwrap();
    }

    fn imagenets(&self) {
        for (label, wnid) in WNIDS.iter().enumerate() {
            self.link(&format!("imagenet/images/train/{wnid}/a.png"), label);
            self.link(&format!("imagenet/images/train/{wnid}/b.png"), label + 1);
        }
        for (number, wnid) in WNIDS.iter().step_by(250).enumerate() {
            self.link(&format!("imagenet/images/val/{wnid}/a.png"), number);
            self.link(&format!("imagenet-sketch/images/{wnid}/a.png"), number + 2);
        }
        for (number, wnid) in WNIDS_A.iter().step_by(60).enumerate() {
            self.link(&format!("imagenet-adversarial/imagenet-a/{wnid}/a.png"), number);
        }
        for (number, wnid) in WNIDS_R.iter().step_by(60).enumerate() {
            self.link(&format!("imagenet-rendition/imagenet-r/{wnid}/a.png"), number + 1);
        }
        for label in [0, 7, 500] {
            self.link(&format!("imagenetv2/imagenetv2-matched-frequency-format-val/{label}/a.png"), label);
        }
    }

    /// The ten others: CoOp's folders with three classes each.
    fn splits(&self) {
        let sets = [
            ("caltech-101", "101_ObjectCategories", "Caltech101"),
            ("oxford_pets", "images", "OxfordPets"),
            ("stanford_cars", "", "StanfordCars"),
            ("oxford_flowers", "jpg", "OxfordFlowers"),
            ("sun397", "SUN397", "SUN397"),
            ("dtd", "images", "DescribableTextures"),
            ("eurosat", "2750", "EuroSAT"),
            ("food-101", "images", "Food101"),
            ("ucf101", "UCF-101-midframes", "UCF101"),
        ];
        for (folder, images, name) in sets {
            let mut parts: BTreeMap<&str, Vec<serde_json::Value>> = BTreeMap::new();
            for (part, count) in [("train", 2), ("val", 1), ("test", 1)] {
                for (label, class) in ["alpha", "beta", "gamma"].iter().enumerate() {
                    for number in 0..count {
                        let file = format!("{part}_{class}_{number}.png");
                        self.link(&format!("{folder}/{images}/{file}").replace("//", "/"), label + number);
                        parts.entry(part).or_default().push(serde_json::json!([file, label, class]));
                    }
                }
            }
            let json = serde_json::json!(parts).to_string();
            put(&self.root(), &format!("{folder}/split_zhou_{name}.json"), json);
        }
        put(&self.root(), "fgvc_aircraft/variants.txt", "707\nConcorde\n");
        for part in ["train", "val", "test"] {
            put(&self.root(), &format!("fgvc_aircraft/images_variant_{part}.txt"), "1 707\n2 Concorde\n");
        }
        let png = std::fs::read(&self.images[0]).unwrap();
        ["1", "2"].iter().for_each(|name| put(&self.root(), &format!("fgvc_aircraft/images/{name}.jpg"), &png));
    }

    fn open(&self) -> OpenOptions {
        OpenOptions { root: Some(self.root()), ..OpenOptions::default() }
    }
}

/// A prompt learned on three classes (CoCoOp with a thousand classes per image would take minutes), or made from one shot of
/// each of the thousand classes, without a search.
fn brought(mini: &ToyModel, model: &Model, method: &str, settings: &str) -> (String, PathBuf) {
    let backbone = if matches!(model.config().image, ImageConfig::Vit { .. }) { "vit" } else { "resnet" };
    let (data, shots) = if method == "tip-adapter" { ("imagenet", 1) } else { ("oxford_pets", 2) };
    let train = open(data, &OpenOptions { split: Split::Train, ..mini.open() }).unwrap();
    let out = mini.folder.path().join(backbone).join(method);
    let overrides = vec![settings.parse().unwrap()];
    let shots = Some(shots);
    let request = TuneRequest { method: method.into(), shots, overrides, out: out.clone(), ..TuneRequest::default() };
    tune(&request, model, &train, &()).unwrap();
    (method.to_owned(), out)
}

fn request(mini: &ToyModel, recipe: Recipe, out: &Path, prompts: &BTreeMap<String, PathBuf>) -> ReproduceRequest {
    let known: Vec<&str> = recipe.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
    let prompts = prompts.iter().filter(|(name, _)| known.contains(&name.as_str()));
    ReproduceRequest {
        open: mini.open(),
        limit: Some(2),
        seeds: vec![1],
        views: Some(4),
        shots: Some(1),
        epochs: Some(1),
        prompts: prompts.map(|(name, path)| (name.clone(), path.clone())).collect(),
        cache: Some(mini.folder.path().join("cache")),
        ..ReproduceRequest::new(recipe, out)
    }
}

#[test]
fn all_fifteen_layouts_open() {
    let mini = ToyModel::new();
    for known in &KNOWN {
        let data = open(known.name, &mini.open()).unwrap_or_else(|e| panic!("{}: {e}", known.name));
        assert!(!data.samples.is_empty(), "{}", known.name);
    }
}

/// The same steps with smaller settings: a thousand classes times eighty templates, or a grid of radii, would take minutes.
fn shorten(recipe: &mut Recipe) {
    if !recipe.source.is_empty() {
        recipe.source = "oxford_pets".into();
    }
    for prompt in &mut recipe.prompts {
        prompt.search = false;
        prompt.text = prompt.text.replace("imagenet80", "imagenet7");
        prompt.on.clear();
        if !prompt.tuner.is_empty() {
            let views = if prompt.tuner.starts_with("maple") { "views.bank=0" } else { "views.bank=1" };
            prompt.settings.extend(parse_settings(&[views, "train.batch=250"]).unwrap());
        }
    }
    recipe.landscapes.iter_mut().for_each(|surface| (surface.points, surface.shots) = (3, 1));
}

#[test]
fn every_recipe_of_the_paper_runs_through_to_its_table() {
    let mini = ToyModel::new();
    let (vit, resnet) = (tiny(true), tiny(false));
    let cocoop = "[train]\nepochs = 1\nbatch = 2";
    let maple = "[train]\nepochs = 1\nbatch = 4\n[maple]\ndepth = 2";
    let tip = "[views]\nbank = 1\n[tip-adapter]\nsearch = 'none'";
    let all = [("cocoop", cocoop), ("maple", maple), ("tip-adapter", tip)];
    let make = |model: &Model, (method, settings): &(&str, &str)| brought(&mini, model, method, settings);
    let vit_prompts: BTreeMap<String, PathBuf> = all.iter().map(|what| make(&vit, what)).collect();
    let on_resnet = all.iter().filter(|(method, _)| *method != "maple");
    let resnet_prompts: BTreeMap<String, PathBuf> = on_resnet.map(|what| make(&resnet, what)).collect();
    for mut recipe in Recipe::embedded().unwrap() {
        if !recipe.bench.is_empty() || recipe.datasets.iter().any(|data| data.starts_with("pocket:")) {
            continue;
        }
        let rn = recipe.model.starts_with("RN");
        shorten(&mut recipe);
        let rows = recipe.rows.len();
        let out = mini.folder.path().join(&recipe.name);
        let (model, prompts) = if rn { (&resnet, &resnet_prompts) } else { (&vit, &vit_prompts) };
        let request = request(&mini, recipe.clone(), &out, prompts);
        let done = reproduce(&request, model, &()).unwrap_or_else(|e| panic!("{}: {e}", recipe.name));
        assert!(done.open.is_empty(), "{}: {:?}", recipe.name, done.open);
        // The generated images of DiffTPT are missing.
        let left_out: Vec<&String> = done.plan.left_out.iter().map(|(row, _)| row).collect();
        assert!(left_out.iter().all(|row| row.contains("DiffTPT")), "{}: {left_out:?}", recipe.name);
        let page = std::fs::read_to_string(&done.report).unwrap();
        assert!(page.contains("<table"), "{}", recipe.name);
        let table = done.results.text();
        for row in recipe.rows.iter().filter(|row| !left_out.contains(&&row.label)) {
            assert!(table.contains(&row.label), "{}: {} is missing of {rows} rows\n{table}", recipe.name, row.label);
        }
        let (again, states) = plan(&request, model).unwrap();
        assert!(states.iter().all(|state| *state == State::Done), "{}: {states:?}", recipe.name);
        assert_eq!(again.steps.len(), states.len());
    }
}

const SMALL: &str = "
name = 'small'
title = 'Two rows on drawn images'
model = 'pocket'
source = 'pocket:photo::256'
datasets = ['pocket:hard']
seeds = [1]
policy = 'crop-flip'
views = 6
limit = 5
reference = 'ZERO'

[[prompt]]
name = 'template'
text = 'template'

[[prompt]]
name = 'coop'
tuner = 'coop'
shots = 2
settings = { train = { epochs = 2 }, coop = { words = '', n_ctx = 2 } }

[[row]]
label = 'ZERO'
prompt = 'coop'
method = 'zero'

[[row]]
label = 'TDA'
prompt = 'template'
method = 'tda'
";

fn small(out: &Path) -> ReproduceRequest {
    ReproduceRequest::new(Recipe::parse(SMALL).unwrap(), out)
}

/// Every file except timings, locks and shards.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() && !name.ends_with(".parts") {
                folders.push(path);
            } else if path.is_file() && !name.starts_with("timing") && name != ".lock" {
                found.insert(path.strip_prefix(folder).unwrap().to_path_buf(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn shards_done_elsewhere_come_together_to_the_same_bytes() {
    let home = tempfile::tempdir().unwrap();
    let model = Model::load("pocket").unwrap();
    let (whole, parts) = (home.path().join("whole/item"), home.path().join("parts/item"));
    reproduce(&small(&whole), &model, &()).unwrap();
    // Two rounds: steps that need a prompt of the other process run in the second.
    for _ in 0..2 {
        for shard in ["0/2", "1/2"] {
            let request = ReproduceRequest { shard: shard.parse().ok(), ..small(&parts) };
            reproduce(&request, &model, &()).unwrap();
        }
    }
    let done = reproduce(&small(&parts), &model, &()).unwrap();
    assert!(done.open.is_empty(), "{:?}", done.open);
    let runs = |folder: &Path| {
        let all = files(folder);
        all.into_iter().filter(|(path, _)| path.ends_with("predictions.jsonl")).collect::<Vec<_>>()
    };
    assert_eq!(runs(&whole).len(), 2);
    assert_eq!(runs(&whole), runs(&parts));
}

#[test]
fn a_damaged_result_is_made_again_and_other_settings_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let model = Model::load("pocket").unwrap();
    let out = home.path().join("item");
    let first = reproduce(&small(&out), &model, &()).unwrap();
    assert_eq!((first.skipped, first.done), (0, 3));
    let before = files(&out);
    let again = reproduce(&small(&out), &model, &()).unwrap();
    assert_eq!((again.skipped, again.done), (3, 0));
    for name in ["prompts/coop/seed-1/prompt.safetensors", "runs/pocket-hard/zero/seed-1/summary.json"] {
        std::fs::write(out.join(name), "cut").unwrap();
        reproduce(&small(&out), &model, &()).unwrap();
        assert_eq!(files(&out), before, "{name}");
    }
    let mut other = small(&out);
    other.recipe.rows[0].options.insert("fraction".into(), 0.5.into());
    let refused = reproduce(&other, &model, &()).unwrap_err().to_string();
    assert!(refused.contains("fraction was 0.3, now 0.5"), "{refused}");
    // Runs with a limit have separate folders.
    let quick = ReproduceRequest { limit: Some(2), ..small(&out) };
    assert_eq!(reproduce(&quick, &model, &()).unwrap().done, 2);
    assert!(out.join("runs-limit-2").is_dir());
}
