//! `flatclip reproduce`: an item of the paper, from its plan to its table.

mod cost;
mod list;
mod typed;

use crate::inputs::model::{PRECISIONS, precision};
use crate::inputs::shard;
use crate::prelude::*;
use flatclip::Model;
use flatclip_lab::data::Split;
use flatclip_lab::reproduce::{BENCH, Estimate, Plan, Recipe, ReproduceRequest, Reproduced, State, Step};
use flatclip_lab::reproduce::{plan, prices, reproduce};
use std::collections::BTreeMap;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The item: table1 to table4, components, rho, rho-test, directions, fraction, lambda, landscapes, efficiency, beyond, pocket; or `list`
    #[arg(value_name = "ITEM", required_unless_present = "recipe")]
    item: Option<String>,
    /// A recipe of your own instead of an item of the paper
    #[arg(long, value_name = "FILE.toml", conflicts_with = "item")]
    recipe: Option<PathBuf>,
    /// Print the steps as commands, and how far each is; start nothing
    #[arg(long)]
    plan: bool,
    /// The model [default: the recipe's]
    #[arg(long, short, env = "FLATCLIP_MODEL", value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    find: FindArgs,
    /// Arithmetic of the image tower
    #[arg(long, env = "FLATCLIP_PRECISION", value_parser = PRECISIONS, default_value = "auto", value_name = "NAME")]
    precision: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// Only so many images of each data set, spread evenly; such runs lie apart from the whole ones
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Other seeds than the recipe's, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "N")]
    seeds: Vec<u64>,
    /// Another number of views per image
    #[arg(long, value_name = "N")]
    views: Option<usize>,
    /// Only rows of these labels or methods, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    methods: Vec<String>,
    /// Only these data sets, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    datasets: Vec<String>,
    /// Another number of training images per class
    #[arg(long, value_name = "N")]
    shots: Option<usize>,
    /// At most so many passes over them
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,
    /// Only this process's part: i/n, auto, auto/n; the same command without it merges the parts
    #[arg(long, value_name = "i/n")]
    shard: Option<String>,
    /// A prompt of yours instead of tuning the recipe's, e.g. maple=FILE (repeatable)
    #[arg(long = "prompt", value_name = "NAME=FILE|RUN")]
    prompts: Vec<String>,
    /// Class embeddings instead of the prompt `template` (with an image tower alone, instead of every prompt of texts): rows
    /// that need no text tower then work
    #[arg(long, value_name = "FILE")]
    text_features: Option<PathBuf>,
    /// Folder with generated images for DiffTPT: DIR/<sample id without ending>/*.png
    #[arg(long, value_name = "DIR")]
    generated: Option<PathBuf>,
    /// Sentences that describe classes (CuPL's), added to DPE's templates: one JSON file, or a folder with NAME.json for each
    /// data set; an object of class names, each with a list of sentences
    #[arg(long, value_name = "FILE|DIR")]
    descriptions: Option<PathBuf>,
    /// Unreadable images to skip, in each step
    #[arg(long, default_value_t = 100, value_name = "N")]
    max_errors: usize,
    #[command(flatten)]
    cache: CacheArgs,
    /// Keep no features between steps
    #[arg(long)]
    no_cache: bool,
    /// The item's folder [default: reproduce-ITEM]
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Args {
    fn recipe(&self) -> Result<Recipe> {
        match (&self.recipe, &self.item) {
            (Some(path), _) => Ok(Recipe::read(path)?),
            (None, Some(item)) => Ok(Recipe::find(item)?),
            (None, None) => bail!("which item? `flatclip reproduce list` shows them"),
        }
    }

    fn request(&self, recipe: Recipe) -> Result<ReproduceRequest> {
        let mut prompts = BTreeMap::new();
        for text in &self.prompts {
            let (name, file) =
                text.split_once('=').with_context(|| format!("--prompt: expected NAME=FILE, found {text:?}"))?;
            prompts.insert(name.to_owned(), typed::absolute(Path::new(file)));
        }
        let out = self.out.clone().unwrap_or_else(|| PathBuf::from(format!("reproduce-{}", recipe.name)));
        Ok(ReproduceRequest {
            open: self.place.options(Split::Test)?,
            compat: self.place.compat.clone(),
            limit: self.limit,
            seeds: self.seeds.clone(),
            views: self.views,
            methods: self.methods.clone(),
            datasets: self.datasets.clone(),
            shots: self.shots,
            epochs: self.epochs,
            shard: shard::read(self.shard.as_ref())?,
            prompts,
            text_features: self.text_features.clone(),
            generated: self.generated.clone(),
            descriptions: self.descriptions.clone(),
            max_errors: self.max_errors,
            cache: (!self.no_cache).then(|| self.cache.folder()),
            ..ReproduceRequest::new(recipe, out)
        })
    }

    /// The model as it was named; the path of one so that it means the same in every folder.
    fn model_name(&self, recipe: &Recipe) -> String {
        let name = self.model.as_deref().unwrap_or(&recipe.model);
        let path = Path::new(name);
        if path.exists() { typed::absolute(path).display().to_string() } else { name.to_owned() }
    }

    /// What every command of a plan is given as this one was.
    fn shared_words(&self) -> [(&'static str, Option<String>); 3] {
        let precision = Some(&self.precision).filter(|name| *name != "auto").cloned();
        let folder = self.find.model_dir.as_ref().map(|folder| folder.display().to_string());
        [("--precision", precision), ("--model-dir", folder), ("--activation", self.find.activation.clone())]
    }

    /// The model; for a plan without it, random weights of its shape: they cost the same.
    fn model(&self, recipe: &Recipe, out: &Output) -> Result<Model> {
        let name = &self.model_name(recipe);
        let find = |name: &str, offline: bool| -> Result<Model> {
            let builder = self.find.builder(name)?.precision(precision(&self.precision));
            Ok(builder.offline(offline || self.find.offline).load(out)?)
        };
        match find(name, self.plan) {
            Ok(model) => {
                out.note(format_args!("{}: {}", model.name(), model.describe()));
                Ok(model)
            }
            Err(error) if self.plan => {
                let shape = name.split('/').next().unwrap_or(name);
                let model = find(&format!("random:{shape}"), true).map_err(|_| error)?;
                out.note(format_args!("{name} is not on disk: planned with random weights of its shape"));
                Ok(model)
            }
            Err(error) => Err(error),
        }
    }
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    if args.item.as_deref() == Some("list") {
        return list::run(&args.place, &args.find, out).map(|()| Exit::Done);
    }
    let recipe = args.recipe()?;
    let model = args.model(&recipe, out)?;
    let request = args.request(recipe)?;
    if args.plan {
        return show(&args, &request, &model, out).map(|()| Exit::Done);
    }
    cost::measure(&request, &model, precision(&args.precision), out)?;
    let done = reproduce(&request, &model, out.interruptible()?)?;
    finish(&done, out)
}

/// A step of the plan.
struct Planned<'a> {
    step: &'a Step,
    state: &'a State,
    price: &'a Estimate,
    command: String,
}

fn show(args: &Args, request: &ReproduceRequest, model: &Model, out: &Output) -> Result<()> {
    let (plan, states) = plan(request, model)?;
    out.note("measuring what an image, an answer and a step cost here: a minute or two for a large model ...");
    let prices = prices(request, model, (&plan, &states), out)?;
    let name = &args.model_name(&request.recipe);
    let typed = typed::Commands { request, model: name, shared: args.shared_words() };
    let steps = plan.steps.iter().zip(&states).zip(&prices);
    let steps: Vec<_> =
        steps.map(|((step, state), price)| Planned { step, state, price, command: typed.of(step) }).collect();
    if out.is_json {
        let row = |Planned { step, state, price, command }: &Planned<'_>| {
            let seconds = price.seconds();
            json!({ "name": step.name, "dir": step.dir, "state": state, "command": command, "price": price, "seconds": seconds })
        };
        let steps: Vec<_> = steps.iter().map(row).collect();
        return out.json(&json!({
            "schema_version": 1, "folder": request.out, "steps": steps, "left_out": plan.left_out, "absent": plan.absent,
        }));
    }
    out.line(format_args!("# in the item's folder\n{}", typed.enter()))?;
    for Planned { step, state, price, command } in &steps {
        let takes = cost::duration(price.seconds());
        let how_far = match state {
            State::Done => "done".to_owned(),
            State::Begun => format!("begun, at most {takes}"),
            State::Ready => format!("about {takes}"),
            State::Waits(reason) => format!("waits: {reason}; about {takes}"),
            State::Absent(_) => format!("its data are not here; about {takes}"),
        };
        out.line(format_args!("# {} ({how_far})\n{command}", step.name))?;
    }
    if let Some(words) = cost::bench_words(request, name) {
        out.line(format_args!("# time and memory of each method\nflatclip {} > {BENCH}", words.join(" ")))?;
    }
    let count = |wanted: fn(&State) -> bool| states.iter().filter(|state| wanted(state)).count();
    let (done, cannot) = (count(|s| *s == State::Done), count(|s| matches!(s, State::Absent(_))));
    let without = if cannot > 0 { format!(", {cannot} whose data are not here") } else { String::new() };
    out.note(format_args!("{} steps: {done} done{without}", states.len()));
    cost::print(request, model, &steps, out)?;
    for (row, reason) in &plan.left_out {
        out.note(format_args!("skipped: {row}: {reason}"));
    }
    say_absent(&plan, out);
    Ok(())
}

fn say_absent(plan: &Plan, out: &Output) {
    for (data, reason) in &plan.absent {
        out.note(format_args!("not here: {data}: {reason}"));
    }
    if !plan.absent.is_empty() {
        out.note("--data-root DIR says where the data sets lie, --path NAME=DIR where one of them does");
    }
}

fn finish(done: &Reproduced, out: &Output) -> Result<Exit> {
    out.say(&done.results.json(), done.results.text())?;
    let Reproduced { plan, skipped, done: ran, open, report, .. } = done;
    out.note(format_args!("{ran} steps done, {skipped} were there already; page: {}", report.display()));
    // What keeps one step of a large item from running keeps many.
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, reason) in open {
        reasons.entry(reason).or_default().push(name);
    }
    for (reason, names) in reasons {
        let more = if names.len() > 1 { format!(" and {} more steps", names.len() - 1) } else { String::new() };
        out.warn(format_args!("{}{more}: not done: {reason}", names[0]));
    }
    say_absent(plan, out);
    Ok(Exit::unless(!open.is_empty()))
}
