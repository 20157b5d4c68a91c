//! Commands about the program itself: `completions`, a script that a shell reads to complete commands and options; `man`, manual
//! pages; `config`, every option of adapters and tuners with its default, or the resolved configuration of a run; `schema`, what
//! the JSON of a command looks like; `version`, what to quote in a report.

use crate::prelude::*;
use clap::CommandFactory as _;
use clap_complete::Shell;
use flatclip::methods::{ADAPTERS, adapter};
use flatclip::model::Precision;
use flatclip_lab::run_dir::RunDir;
use flatclip_lab::tuners::tuner;
use flatclip_tensor::isa;

pub(crate) fn completions(shell: Shell, out: &Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::Cli::command(), "flatclip", &mut script);
    out.line(String::from_utf8_lossy(&script).trim_end())
}

pub(crate) fn manual(folder: Option<&Path>, out: &Output) -> Result<()> {
    let command = crate::Cli::command();
    let Some(folder) = folder else { return out.line(String::from_utf8_lossy(&page(command)?).trim_end()) };
    std::fs::create_dir_all(folder).map_err(flatclip::Error::io(folder))?;
    let pages = write(command, "flatclip", folder)?;
    out.note(format_args!("{}: {pages} manual pages", folder.display()));
    Ok(())
}

/// Writes the page of a command and of those below it; how many there are.
fn write(command: clap::Command, name: &str, folder: &Path) -> Result<usize> {
    let mut pages = 1;
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        pages += write(below.clone(), &format!("{name}-{}", below.get_name()), folder)?;
    }
    let page = page(command.display_name(name.to_owned()).bin_name(name.replace('-', " ")))?;
    write_atomic(&folder.join(format!("{name}.1")), &page)?;
    Ok(pages)
}

fn page(command: clap::Command) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(text)
}

#[derive(clap::Args)]
pub(crate) struct ConfigArgs {
    /// Adapters or tuners; a tuner comes with its [train] and [views] [default: all adapters]
    #[arg(value_name = "METHOD")]
    methods: Vec<String>,
    /// Print the configuration of a run instead, every default filled in
    #[arg(long, value_name = "RUN", conflicts_with = "methods")]
    run: Option<PathBuf>,
}

pub(crate) fn config(args: ConfigArgs, out: &Output) -> Result<()> {
    if let Some(path) = &args.run {
        let config = RunDir::open(path)?.config_table()?;
        return out.say(&config, toml::to_string(&config)?.trim_end());
    }
    let mut all = toml::Table::new();
    if args.methods.is_empty() {
        all.extend(ADAPTERS.iter().map(|spec| (spec.name.to_owned(), spec.defaults().into())));
    }
    for name in &args.methods {
        match (adapter(name), tuner(name)) {
            (Ok(spec), _) => drop(all.insert(spec.name.to_owned(), spec.defaults().into())),
            (_, Ok(spec)) => {
                all.insert(spec.table.to_owned(), spec.defaults().into());
                all.insert("train".to_owned(), (spec.recipe)().table().into());
                all.insert("views".to_owned(), (spec.views)().table().into());
            }
            (Err(error), Err(_)) => return Err(error.into()),
        }
    }
    out.say(&all, toml::to_string(&all)?.trim_end())
}

macro_rules! schemas {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../schemas/", $name, ".json")))),*]
    };
}

const SCHEMAS: [(&str, &str); 35] = schemas![
    "analyze",
    "bench",
    "cache-export",
    "cache-import",
    "cache-ls",
    "cache-rm",
    "config",
    "convert",
    "data-check",
    "data-ls",
    "data-show",
    "demo",
    "embed",
    "error",
    "eval",
    "landscape",
    "methods",
    "methods-advice",
    "methods-show",
    "models",
    "models-show",
    "pocket-export",
    "predict",
    "prompt-export",
    "prompt-import",
    "prompt-show",
    "report",
    "report-merge",
    "reproduce",
    "reproduce-list",
    "reproduce-plan",
    "stats",
    "sweep",
    "tune",
    "version",
];

pub(crate) fn schema(command: Option<&str>, out: &Output) -> Result<()> {
    let Some(name) = command else {
        let names: Vec<&str> = SCHEMAS.iter().map(|(name, _)| *name).collect();
        return out.say(&json!({ "schema_version": 1, "schemas": names }), names.join("\n"));
    };
    let wanted = name.replace(' ', "-");
    let known = || flatclip::Error::unknown("schema", name, SCHEMAS.iter().map(|(name, _)| *name));
    let (_, text) = SCHEMAS.iter().find(|(name, _)| *name == wanted).with_context(|| known().to_string())?;
    out.line(text.trim_end())
}

pub(crate) fn version(out: &Output) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let threads = rayon::current_num_threads();
    // What `--isa` or this machine chooses, and what `--precision auto` then is.
    let (isa, precision) = (isa::current().name(), Precision::auto().name());
    let optimised = !cfg!(debug_assertions);
    let document = json!({
        "version": version, "threads": threads, "isa": isa, "precision": precision, "optimised": optimised,
    });
    let text = format!("flatclip {version}, {threads} threads, instructions {isa}, precision {precision}");
    out.say(&document, text)?;
    if !optimised && !out.is_json {
        out.warn("built without optimisation: everything is many times slower; build with --release");
    }
    Ok(())
}
