//! `cargo xtask audit`: dependencies against `deny.toml` (licences, sources, banned crates), without network. Advisories need a
//! database from the network: where cargo-deny is installed, it looks at those too.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_: &Arguments) -> Result<()> {
    let root = crate::root()?;
    let rules: toml::Table = std::fs::read_to_string(root.join("deny.toml"))?.parse()?;
    // What was built is on disk; packages of other systems need not be.
    let host = host()?;
    let output = crate::cargo()
        .args(["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform", &host])
        .current_dir(root)
        .output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let found = faults(packages, &rules);
    for line in &found {
        eprintln!("{line}");
    }
    ensure!(found.is_empty(), "{} dependencies do not fit deny.toml", found.len());
    let doubled = doubled(packages);
    println!("{} packages fit deny.toml; in several versions: {}", packages.len(), doubled.join(", "));
    let has_deny = Command::new("cargo").args(["deny", "--version"]).output().is_ok_and(|o| o.status.success());
    if !has_deny {
        println!("advisories were not looked at: cargo-deny is not installed");
        return Ok(());
    }
    let status = Command::new("cargo").args(["deny", "check", "advisories"]).current_dir(root).status()?;
    if !status.success() {
        bail!("cargo deny check advisories failed");
    }
    Ok(())
}

/// The system that this is built for.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output()?;
    let text = String::from_utf8(output.stdout)?;
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned).context("rustc -vV names no host")
}

/// One line for each package that the rules do not allow.
fn faults(packages: &[Value], rules: &toml::Table) -> Vec<String> {
    let list = |table: &str, key: &str| -> Vec<String> {
        let values = rules.get(table).and_then(|t| t.get(key)).and_then(toml::Value::as_array);
        let text = |value: &toml::Value| value.as_str().or_else(|| value.get("crate")?.as_str()).map(str::to_owned);
        values.into_iter().flatten().filter_map(text).collect()
    };
    let (licences, banned, registries) =
        (list("licenses", "allow"), list("bans", "deny"), list("sources", "allow-registry"));
    let mut found = Vec::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let name = format!("{} {}", text("name"), text("version"));
        if is_allowed(text("license"), &licences) != Some(true) {
            found.push(format!("{name}: licence {:?} is not allowed", text("license")));
        }
        if banned.iter().any(|banned| banned == text("name")) {
            found.push(format!("{name}: is banned"));
        }
        // Packages of this workspace have no source.
        let source = text("source").trim_start_matches("registry+");
        if !source.is_empty() && !registries.iter().any(|registry| registry == source) {
            found.push(format!("{name}: comes from {source}"));
        }
    }
    found
}

fn doubled(packages: &[Value]) -> Vec<String> {
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for package in packages {
        *versions.entry(package["name"].as_str().unwrap_or_default()).or_default() += 1;
    }
    versions.into_iter().filter(|(_, count)| *count > 1).map(|(name, count)| format!("{name} ({count})")).collect()
}

/// Whether these licences fulfil an SPDX expression; `None` for what is not one. Old manifests write `A/B` for `A OR B`.
fn is_allowed(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (fine, rest) = any_of(&words, allowed)?;
    rest.is_empty().then_some(fine)
}

/// The value of what `words` begin with, and the words behind it.
type Parsed<'a, 'w> = Option<(bool, &'a [&'w str])>;

fn any_of<'a, 'w>(words: &'a [&'w str], allowed: &[String]) -> Parsed<'a, 'w> {
    let (mut fine, mut rest) = all_of(words, allowed)?;
    while let ["OR", after @ ..] = rest {
        let (next, left) = all_of(after, allowed)?;
        (fine, rest) = (fine | next, left);
    }
    Some((fine, rest))
}

fn all_of<'a, 'w>(words: &'a [&'w str], allowed: &[String]) -> Parsed<'a, 'w> {
    let (mut fine, mut rest) = one(words, allowed)?;
    while let ["AND", after @ ..] = rest {
        let (next, left) = one(after, allowed)?;
        (fine, rest) = (fine & next, left);
    }
    Some((fine, rest))
}

fn one<'a, 'w>(words: &'a [&'w str], allowed: &[String]) -> Parsed<'a, 'w> {
    match words {
        ["(", inside @ ..] => {
            let (fine, rest) = any_of(inside, allowed)?;
            let [")", rest @ ..] = rest else { return None };
            Some((fine, rest))
        }
        [] | ["OR" | "AND" | "WITH" | ")", ..] => None,
        [name, "WITH", exception, rest @ ..] => Some((allowed.contains(&format!("{name} WITH {exception}")), rest)),
        [name, rest @ ..] => Some((allowed.iter().any(|known| known == name), rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "ISC"].map(str::to_owned);
        let fits = |text: &str| is_allowed(text, &allowed) == Some(true);
        for good in
            ["MIT", "GPL-3.0 OR MIT", "MIT/GPL-3.0", "(GPL-3.0 OR MIT) AND ISC", "Apache-2.0 WITH LLVM-exception"]
        {
            assert!(fits(good), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT OR", "(MIT", "Apache-2.0", "MIT ISC"] {
            assert!(!fits(bad), "{bad}");
        }
    }

    #[test]
    fn a_foreign_licence_source_or_crate_is_named() {
        let rules: toml::Table =
            "licenses.allow = ['MIT']\nbans.deny = [{ crate = 'evil' }]\nsources.allow-registry = ['https://r']"
                .parse()
                .unwrap();
        let package = |name: &str, licence: &str, source: Option<&str>| json!({ "name": name, "version": "1", "license": licence, "source": source });
        assert!(
            faults(&[package("a", "MIT", Some("registry+https://r")), package("b", "MIT", None)], &rules).is_empty()
        );
        let bad =
            [package("a", "GPL-3.0", None), package("evil", "MIT", None), package("c", "MIT", Some("git+https://x"))];
        let found = faults(&bad, &rules);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("GPL") && found[1].contains("banned") && found[2].contains("git"));
    }
}
