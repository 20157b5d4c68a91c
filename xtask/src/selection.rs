//! `cargo xtask selection`: the experiment of `docs/research/selection.md`. `validation` runs every rule and chooses, `test` runs the
//! chosen ones once, `real` compares one rule with its control on photos. Each writes its table into the page.

pub(crate) mod stats;

use anyhow::{Context as _, Result, ensure};
use flatclip::image::views::ViewPolicy;
use flatclip::prompt::read_text_features;
use flatclip::settings::parse_settings;
use flatclip::{Model, Progress, Prompt};
use flatclip_lab::data::{Dataset, OpenOptions, open};
use flatclip_lab::report::{Cell, Run, Table};
use flatclip_lab::{EvaluateRequest, NamedPrompt, PromptChoice, ViewChoice, evaluate};
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/research/selection.md";
const MODELS: [&str; 2] = ["pocket", "pocket-vit"];
/// The shifted ones.
const STYLES: [&str; 6] = ["sketch", "cartoon", "painting", "noise", "rendition", "hard"];
const SEEDS: u64 = 8;
const TEMPLATES: [&str; 6] = [
    "an image of a {}.",
    "a drawing of a {}.",
    "an image of a {}.",
    "a {}.",
    "a photo of the {}.",
    "a photo of one {}.",
];

/// A rule and what it is compared with.
struct Rule {
    name: &'static str,
    /// Options of stss.
    options: &'static [&'static str],
    /// Options of the control.
    control: &'static [&'static str],
    augmix: bool,
    /// Whether other templates stand around the prompt.
    natural: bool,
}

const RELATIVE: &str = "radius_unit=\"relative\"";
const NATURAL: [&str; 2] = ["lambda=0.857142857142857", "reduce=\"mean\""];
const fn rule(name: &'static str, options: &'static [&'static str]) -> Rule {
    Rule { name, options, control: &[], augmix: false, natural: false }
}

const RULES: [Rule; 10] = [
    rule("paper", &[]),
    rule("antithetic", &["directions=\"antithetic\""]),
    rule("relative", &[RELATIVE]),
    rule("jacobian", &[RELATIVE, "directions=\"jacobian\""]),
    rule("ascent", &[RELATIVE, "directions=\"ascent\""]),
    rule("margin", &[RELATIVE, "surrogate=\"margin\""]),
    Rule { control: &["fraction=0.5"], ..rule("weighted", &[RELATIVE, "fraction=0.5", "vote=\"score-weighted\""]) },
    Rule { augmix: true, ..rule("photometric", &[RELATIVE]) },
    Rule { natural: true, ..rule("natural", &NATURAL) },
    Rule {
        natural: true,
        control: &["vote_text=\"bank-mean\""],
        ..rule("natural, ensemble", &[NATURAL[0], NATURAL[1], "vote_text=\"bank-mean\""])
    },
];

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Where features and runs are kept; a second run goes on
    #[arg(long, global = true, default_value = "target/selection", value_name = "DIR")]
    folder: PathBuf,
    /// Images of each style
    #[arg(long, global = true, default_value_t = 160, value_name = "N")]
    count: usize,
    /// Only the runs of this model, for a second process beside the first; the page is written by a call without it
    #[arg(long, global = true, value_name = "NAME")]
    only: Option<String>,
}

#[derive(clap::Subcommand)]
enum What {
    /// All rules on the validation world
    Validation,
    /// The rules that validation chose, on the test world: once
    Test,
    /// The natural perturbation on photos
    Real {
        /// Model directory of the image tower
        #[arg(long)]
        tower: PathBuf,
        /// Folder with the data set in CoOp's layout
        #[arg(long)]
        data: PathBuf,
        /// Class embeddings of the prompt, then of the others
        #[arg(long, num_args = 3, value_name = "FILE")]
        prompts: Vec<PathBuf>,
        /// Feature cache
        #[arg(long)]
        cache: PathBuf,
    },
}

struct Quiet;

impl Progress for Quiet {
    fn warn(&self, text: &str) {
        eprintln!("warning: {text}");
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let root = crate::root()?;
    let folder = root.join(&arguments.folder);
    match &arguments.what {
        What::Validation => worlds(arguments, &folder, "validation", &RULES.iter().collect::<Vec<_>>()),
        What::Test => {
            let chosen = chosen(&std::fs::read_to_string(root.join(PAGE))?)?;
            let rules: Vec<&Rule> =
                RULES.iter().filter(|r| r.name == "paper" || chosen.iter().any(|c| c == r.name)).collect();
            worlds(arguments, &folder, "test", &rules)
        }
        What::Real { tower, data, prompts, cache } => real(root, &folder, tower, data, prompts, cache),
    }
}

/// The rules that the page says validation chose.
fn chosen(page: &str) -> Result<Vec<String>> {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("Chosen: "))
        .context("the page has no line `Chosen:`; run validation first")?;
    Ok(line.split(';').filter_map(|part| Some(part.split('`').nth(1)?.to_owned())).collect())
}

/// Rules on a world of both models: differences to the controls, and how far scores and entropies agree.
fn worlds(arguments: &Arguments, folder: &Path, world: &str, rules: &[&Rule]) -> Result<()> {
    let count = arguments.count;
    let header = [
        "model",
        "rule",
        "control",
        "rule top-1",
        "difference",
        "95 %",
        "q",
        "c",
        "predicted",
        "rank corr.",
        "kept alike",
    ];
    let mut table = Table::new(format!("The {world} world: {count} images of each style, {SEEDS} seeds"), header);
    let mut best = Vec::new();
    let wanted = |name: &&str| arguments.only.as_ref().is_none_or(|only| only == name);
    for name in MODELS.into_iter().filter(wanted) {
        let model = Model::load(name)?;
        let mut top = (f64::NEG_INFINITY, "");
        for rule in rules {
            let (mut pairs, mut agreement) = (Vec::new(), stats::Agreement::default());
            for style in &STYLES {
                let data = open(&format!("pocket:{style}:{world}:{count}"), &OpenOptions::default())?;
                for seed in 0..SEEDS {
                    // A run over another number of images is another run, not one to resume.
                    let at =
                        folder.join(name).join(world).join(format!("{style}-{count}")).join(format!("seed-{seed}"));
                    let ours = runs(&at, folder, &model, &data, rule, rule.options, rule.augmix, seed)?;
                    let mut plain = vec!["lambda=0.0"];
                    plain.extend(rule.control);
                    let control = runs(&at, folder, &model, &data, rule, &plain, false, seed)?;
                    pairs.push((style, stats::rights(&ours)?, stats::rights(&control)?));
                    agreement.add(&ours, &control)?;
                }
            }
            let paired = stats::paired(&pairs);
            if paired.difference > top.0 {
                top = (paired.difference, rule.name);
            }
            eprintln!("{name} {}: {:+.2} ({:+.2} to {:+.2})", rule.name, paired.difference, paired.low, paired.high);
            let [q, c, predicted, rank, alike] = agreement.means();
            table.push(vec![
                Cell::text(name),
                Cell::text(rule.name),
                Cell::number(paired.control, 2),
                Cell::number(paired.rule, 2),
                Cell::text(format!("{:+.2}", paired.difference)),
                Cell::text(format!("{:+.2} to {:+.2}", paired.low, paired.high)),
                Cell::number(q, 3),
                Cell::number(c, 3),
                Cell::number(predicted, 3),
                Cell::number(rank, 3),
                Cell::number(alike, 2),
            ]);
        }
        best.push(format!("`{}` on {name} ({:+.2})", top.1, top.0));
    }
    table.notes.push("top-1 in per cent over the six shifted styles; q, c, correlations and kept views alike (of 6, or of 32 for weighted): means over images".into());
    let mut text = table.to_markdown();
    if world == "validation" {
        text.push_str(&format!("\nChosen: {}\n", best.join("; ")));
    }
    if arguments.only.is_some() {
        println!("{text}");
        return Ok(());
    }
    write(crate::root()?, world, &text)
}

/// One run of stss; a finished one is read.
#[allow(clippy::too_many_arguments, reason = "one place that names everything a run depends on")]
fn runs(
    at: &Path,
    folder: &Path,
    model: &Model,
    data: &Dataset,
    rule: &Rule,
    options: &[&str],
    augmix: bool,
    seed: u64,
) -> Result<Run> {
    let mut settings: Vec<String> = vec!["vote=\"mean-probability\"".into()];
    settings.extend(options.iter().filter(|o| !o.starts_with("vote=")).map(|o| (*o).to_owned()));
    if let Some(vote) = options.iter().find(|o| o.starts_with("vote=")) {
        settings[0] = (*vote).to_owned();
    }
    let natural = rule.natural;
    let name = format!(
        "{}{}{}",
        settings.join(","),
        if natural { ",natural" } else { "" },
        if augmix { ",augmix" } else { "" }
    );
    let dir = at.join(name.replace(['"', '='], "-"));
    if dir.join("summary.json").is_file() {
        return Ok(Run::read(&dir)?);
    }
    let beside = if natural {
        TEMPLATES.iter().map(|t| Ok(Prompt::templates(&[*t])?.into())).collect::<Result<_>>()?
    } else {
        Vec::new()
    };
    let policy = if augmix { ViewPolicy::AugMix } else { ViewPolicy::CropFlip };
    let request = EvaluateRequest {
        options: parse_settings(&settings)?,
        seeds: vec![seed],
        views: Some(64),
        view_policy: ViewChoice::Policy(policy),
        bank: beside,
        cache: Some(folder.join("cache")),
        resume: true,
        ..EvaluateRequest::new(&dir)?
    };
    evaluate(&request, model, std::slice::from_ref(data), &Quiet)?;
    Ok(Run::read(&dir)?)
}

fn real(root: &Path, folder: &Path, tower: &Path, data: &Path, prompts: &[PathBuf], cache: &Path) -> Result<()> {
    use flatclip::model::{Precision, Towers};
    let model = Model::builder(tower.display().to_string())
        .offline(true)
        .towers(Towers::Image)
        .precision(Precision::I16)
        .load(&Quiet)?;
    let photos = open("imagenet", &OpenOptions { root: Some(data.to_path_buf()), ..OpenOptions::default() })?;
    let named = |path: &PathBuf| -> Result<NamedPrompt> {
        Ok(NamedPrompt {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            ..read_text_features(path)?.into()
        })
    };
    let [photo, beside @ ..] = prompts else { anyhow::bail!("--prompts: expected three files") };
    let mut rows = Vec::new();
    for (name, options) in
        [("entropy", &["lambda=0.0"][..]), ("mean of three", &["lambda=0.666666666666667", "reduce=\"mean\""][..])]
    {
        let mut settings: Vec<String> = vec!["vote=\"mean-probability\"".into(), "vote_text=\"bank-mean\"".into()];
        settings.extend(options.iter().map(|o| (*o).to_owned()));
        let request = EvaluateRequest {
            prompt: PromptChoice::One(named(photo)?),
            options: parse_settings(&settings)?,
            views: Some(64),
            bank: beside.iter().map(named).collect::<Result<_>>()?,
            cache: Some(cache.to_path_buf()),
            resume: true,
            ..EvaluateRequest::new(folder.join("real").join(name.replace(' ', "-")))?
        };
        let done = evaluate(&request, &model, std::slice::from_ref(&photos), &Quiet)?;
        ensure!(done.len() == 1, "expected one run");
        rows.push(Run::read(&done[0].dir)?);
    }
    let pair = [(&"real", stats::rights(&rows[1])?, stats::rights(&rows[0])?)];
    let paired = stats::paired(&pair);
    let mut table = Table::new(
        format!("{} real photos, CLIP ViT-B/16, i16, 64 views, seed 0", rows[0].summary.samples),
        ["kept by", "top-1", "difference", "95 %"],
    );
    table.push(vec![Cell::text("entropy at `photo`"), Cell::number(paired.control, 2), Cell::none(), Cell::none()]);
    table.push(vec![
        Cell::text("mean entropy over three prompts"),
        Cell::number(paired.rule, 2),
        Cell::text(format!("{:+.2}", paired.difference)),
        Cell::text(format!("{:+.2} to {:+.2}", paired.low, paired.high)),
    ]);
    table.notes.push("both vote with the mean text features of the three prompts; paired bootstrap over photos".into());
    write(root, "real", &table.to_markdown())
}

/// Puts a part's text into the page, in the place of what it said before.
fn write(root: &Path, part: &str, text: &str) -> Result<()> {
    println!("{text}");
    let path = root.join(PAGE);
    let page = std::fs::read_to_string(&path)?;
    std::fs::write(&path, placed(&page, part, text)?)?;
    Ok(())
}

/// The page with `text` between the part's marks, which are made at the end of the block if they are not there.
fn placed(page: &str, part: &str, text: &str) -> Result<String> {
    let (open, close) = (format!("<!-- {part} -->"), format!("<!-- /{part} -->"));
    let block = format!("{open}\n{}\n{close}", text.trim());
    if let (Some(from), Some(to)) = (page.find(&open), page.find(&close)) {
        return Ok(format!("{}{block}{}", &page[..from], &page[to + close.len()..]));
    }
    let end = page.find("<!-- /selection -->").context("the page has no place for results")?;
    Ok(format!("{}{block}\n\n{}", &page[..end], &page[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_replace_earlier_ones_and_the_choice_is_read_back() {
        let page = "text\n<!-- selection: x -->\n<!-- /selection -->\n";
        let once = placed(page, "validation", "old").unwrap();
        let twice = placed(
            &once,
            "validation",
            "new\nChosen: `paper` on pocket (+0.10); `natural, ensemble` on pocket-vit (+1.00)",
        )
        .unwrap();
        assert!(!twice.contains("old") && twice.contains("new"));
        assert_eq!(chosen(&twice).unwrap(), ["paper", "natural, ensemble"]);
        assert!(chosen(page).is_err() && placed("text", "test", "x").is_err());
    }

    #[test]
    fn every_rule_is_a_setting_of_stss() {
        for rule in &RULES {
            let settings: Vec<String> = rule.options.iter().chain(rule.control).map(|o| (*o).to_owned()).collect();
            for one in settings {
                let table = parse_settings(&[one]).unwrap();
                flatclip::methods::build_adapter("stss", &table).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
            }
        }
    }
}
