//! `flatclip completions SHELL`, a script that a shell reads to complete commands and options; `flatclip man`, manual pages.

use crate::prelude::*;
use clap::CommandFactory as _;
use clap_complete::Shell;
use flatclip::files::write_atomic;

#[derive(clap::Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for the pages: flatclip.1, flatclip-predict.1, ... [default: print flatclip.1]
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn completions(args: CompletionArgs, out: &Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "flatclip", &mut script);
    out.line(String::from_utf8_lossy(&script).trim_end())
}

pub(crate) fn run(args: Args, out: &Output) -> Result<()> {
    let command = crate::Cli::command();
    let Some(folder) = &args.out else {
        return out.line(String::from_utf8_lossy(&page(command)?).trim_end());
    };
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
