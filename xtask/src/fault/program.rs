//! Running the binary under attack: in a folder of its own, within a limit of time, and what came of it.

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A run of the binary may take this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A tuning run of some seconds, without its length and its place; it goes on with what is there.
pub(super) const SMALL_TUNE: &[&str] = &[
    "tune",
    "--method",
    "coop",
    "--data",
    "pocket:photo:train:64",
    "--shots",
    "1",
    "--set",
    "coop.words=",
    "--set",
    "coop.n_ctx=2",
    "--resume",
    "--quiet",
];

/// Peak resident memory of the processes that this one has started and waited for.
pub(crate) fn peak_of_children() -> u64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| usage.max_rss().max(0) as u64 * 1024)
}

/// The binary, and the folder that is its home and working directory.
#[derive(Clone)]
pub(crate) struct Program {
    binary: PathBuf,
    pub folder: PathBuf,
}

/// What a run left behind.
pub(crate) struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub seconds: f64,
}

impl Program {
    pub(crate) fn new(binary: &Path, folder: &Path) -> Self {
        Self { binary: binary.to_path_buf(), folder: folder.to_path_buf() }
    }

    /// The command, with nothing of the caller's own settings.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(&self.binary);
        self.prepare(&mut command).args(arguments);
        command
    }

    /// The command below limits of the shell, such as `ulimit -v 100000`.
    pub(crate) fn limited(&self, limit: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("bash");
        self.prepare(&mut command).args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")]);
        command.arg(&self.binary).args(arguments);
        command
    }

    fn prepare<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["FLATCLIP", "HF_", "XDG_", "RAYON", "NO_COLOR", "LC_", "LANG"].iter().any(|part| text.starts_with(part))
            {
                command.env_remove(&name);
            }
        }
        command.current_dir(&self.folder).env("HOME", &self.folder).env("FLATCLIP_CACHE", self.folder.join("cache"))
    }

    /// Runs to the end. A panic or a crash is an error; a refusal is not.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Ended> {
        let ended = finish(self.command(arguments))?;
        ended.check_sane()?;
        Ok(ended)
    }

    /// Runs to the end and expects success.
    pub(crate) fn works<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Ended> {
        let ended = self.run(arguments)?;
        ensure!(ended.status.success(), "exit {}: {}", ended.status, ended.stderr.trim());
        Ok(ended)
    }

    /// Expects a refusal (2, or 3 where no image could be read) with these words.
    pub(crate) fn refuses<S: AsRef<OsStr>>(&self, arguments: &[S], words: &str) -> Result<Ended> {
        let ended = self.run(arguments)?;
        ensure!(
            matches!(ended.status.code(), Some(2 | 3)),
            "expected exit 2, found {}: {}",
            ended.status,
            ended.stderr.trim()
        );
        ensure!(ended.stderr.contains(words), "expected {words:?} in: {}", ended.stderr.trim());
        Ok(ended)
    }
}

impl Ended {
    /// Neither a panic nor a death by signal.
    pub(crate) fn check_sane(&self) -> Result<()> {
        ensure!(
            self.status.code().is_some_and(|code| code != 101),
            "ended with {}: {}",
            self.status,
            self.stderr.trim()
        );
        ensure!(!self.stderr.contains("panicked at"), "{}", self.stderr.trim());
        Ok(())
    }
}

/// Runs a command to its end, or ends it when it hangs.
pub(crate) fn finish(command: Command) -> Result<Ended> {
    finish_within(command, PATIENCE)
}

/// The same for work that takes longer.
pub(crate) fn finish_within(mut command: Command, patience: Duration) -> Result<Ended> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let stderr = child.stderr.take().context("stderr is piped")?;
    let (out, err) = (drain(stdout), drain(stderr));
    let status = wait(&mut child, patience)?;
    let text = |thread: std::thread::JoinHandle<Vec<u8>>| thread.join().unwrap_or_default();
    let stderr = String::from_utf8_lossy(&text(err)).into_owned();
    Ok(Ended { status, stdout: text(out), stderr, seconds: start.elapsed().as_secs_f64() })
}

/// Waits for the end, not for ever.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            bail!("did not end within {} s", patience.as_secs());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn drain(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}
