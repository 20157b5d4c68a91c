//! `flatclip man --out DIR`: manual pages.

use crate::output::{Exit, Output};
use clap::CommandFactory as _;
use flatclip::files::write_atomic;
use std::path::{Path, PathBuf};

/// Options of `flatclip man`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for the pages: flatclip.1, flatclip-predict.1, ... [default: print flatclip.1]
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: Args, out: &Output) -> anyhow::Result<Exit> {
    let command = crate::Cli::command();
    let Some(folder) = &args.out else {
        out.line(String::from_utf8_lossy(&page(command)?).trim_end())?;
        return Ok(Exit::Done);
    };
    std::fs::create_dir_all(folder).map_err(flatclip::Error::io(folder))?;
    let pages = write(command, "flatclip", folder)?;
    out.note(format_args!("{}: {pages} manual pages", folder.display()));
    Ok(Exit::Done)
}

/// Writes the page of a command and of those below it; how many there are.
fn write(command: clap::Command, name: &str, folder: &Path) -> anyhow::Result<usize> {
    let mut pages = 1;
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        let name = format!("{name}-{}", below.get_name());
        pages += write(below.clone(), &name, folder)?;
    }
    write_atomic(
        &folder.join(format!("{name}.1")),
        &page(command.display_name(name).bin_name(name.replace('-', " ")))?,
    )?;
    Ok(pages)
}

fn page(command: clap::Command) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(text)
}
