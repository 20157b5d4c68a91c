//! `--shard`: given, or taken from what a launcher sets.

use anyhow::{Context as _, Result, bail};
use flatclip_lab::eval::Shard;

/// Index and count variables of torchrun, Slurm, PMI, Open MPI.
const LAUNCHERS: [(&str, &str); 4] = [
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
];
/// Index of a pod of a Kubernetes job; the count is not told.
const KUBERNETES: &str = "JOB_COMPLETION_INDEX";

pub(crate) fn read(text: Option<&String>) -> Result<Option<Shard>> {
    text.map(|text| parse(text, |name| std::env::var(name).ok())).transpose()
}

/// `i/n`, `auto` (index and count from the launcher) or `auto/n` (index from the launcher).
fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Shard> {
    let Some(rest) = text.strip_prefix("auto") else { return Ok(text.parse()?) };
    let count = match rest.strip_prefix('/') {
        Some(count) => Some(count.parse::<usize>().with_context(|| format!("--shard {text}: expected auto/N"))?),
        None if rest.is_empty() => None,
        None => bail!("--shard {text}: expected i/n, auto or auto/n"),
    };
    let number = |name: &str| variable(name).and_then(|value| value.trim().parse::<usize>().ok());
    for (index, total) in LAUNCHERS {
        if let (Some(index), Some(total)) = (number(index), count.or_else(|| number(total))) {
            return Ok(format!("{index}/{total}").parse()?);
        }
    }
    match (number(KUBERNETES), count) {
        (Some(index), Some(count)) => Ok(format!("{index}/{count}").parse()?),
        (Some(_), None) => bail!("--shard auto: {KUBERNETES} tells the index, but not the count; give --shard auto/N"),
        (None, _) => {
            bail!("--shard {text}: none of RANK, SLURM_PROCID, PMI_RANK, OMPI_COMM_WORLD_RANK, {KUBERNETES} is set")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> {
        move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn every_launcher_is_understood() {
        let shard = |text: &str, pairs| parse(text, with(pairs)).map(String::from);
        assert_eq!(shard("1/3", &[]).unwrap(), "1/3");
        assert_eq!(shard("auto", &[("RANK", "2"), ("WORLD_SIZE", "4")]).unwrap(), "2/4");
        assert_eq!(shard("auto", &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]).unwrap(), "0/8");
        assert_eq!(shard("auto", &[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")]).unwrap(), "1/2");
        assert_eq!(shard("auto", &[("PMI_RANK", "1"), ("PMI_SIZE", "2")]).unwrap(), "1/2");
        assert_eq!(shard("auto/5", &[("JOB_COMPLETION_INDEX", "4")]).unwrap(), "4/5");
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = |text: &str, pairs| parse(text, with(pairs)).unwrap_err().to_string();
        assert!(message("auto", &[("JOB_COMPLETION_INDEX", "4")]).contains("auto/N"));
        assert!(message("auto", &[]).contains("SLURM_PROCID"));
        assert!(message("auto/3", &[("RANK", "3")]).contains("3/3"));
        assert!(message("autox", &[]).contains("expected"));
    }
}
