//! `flatclip config`: every option of adapters and tuners with its default, or the resolved configuration of a run.

use crate::prelude::*;
use flatclip::methods::{ADAPTERS, adapter};
use flatclip_lab::run_dir::RunDir;
use flatclip_lab::tuners::tuner;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Adapters or tuners; a tuner comes with its [train] and [views] [default: all adapters]
    #[arg(value_name = "METHOD")]
    methods: Vec<String>,
    /// Print the configuration of a run instead, every default filled in
    #[arg(long, value_name = "RUN", conflicts_with = "methods")]
    run: Option<PathBuf>,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<()> {
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
