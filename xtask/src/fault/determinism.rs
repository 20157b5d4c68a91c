//! Results that must not depend on threads, shards, locale, time zone, or the place of a folder.

use super::folders::{contents, differences};
use super::program::Program;
use super::{Suite, Test, Trial};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;

pub(super) const TESTS: &[Test] = &[
    test(
        "F9",
        "eval in 2, 3 and 7 shards, merged in any order; parts missing, twice, foreign",
        "the bytes of one run; refusals name what is wrong",
        shards,
    ),
    test("F11", "threads 1, 2, 3, 8; with and without kept features", "the same predictions, to the byte", threads),
    test(
        "F12",
        "instruction paths: plain against the best of the machine",
        "the same answers, probabilities within 1e-3",
        instructions,
    ),
    test("F14", "locales, time zones, a clock set back", "the same bytes", surroundings),
];

const fn test(name: &'static str, what: &'static str, rule: &'static str, run: fn(&mut Trial) -> Result<()>) -> Test {
    Test { name, suite: Suite::Determinism, what, rule, patience: 60, run }
}

const EVAL: &[&str] =
    &["eval", "--method", "stss", "--data", "pocket:sketch", "--limit", "24", "--views", "8", "--quiet", "--out"];

fn eval<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    EVAL.iter().copied().chain([out]).chain(more.iter().copied()).collect()
}

/// The files whose bytes say what was answered; the configuration of a shard differs from that of the whole.
fn answers(program: &Program, out: &str) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut all = contents(&program.folder.join(out))?;
    all.retain(|name, _| name == "predictions.jsonl" || name == "summary.json" || name == "classes.txt");
    ensure!(all.len() == 3, "{out} has {} of 3 files", all.len());
    Ok(all)
}

fn same(expected: &BTreeMap<String, Vec<u8>>, found: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    let different = differences(expected, found);
    ensure!(different.is_empty(), "{}", different.join(", "));
    Ok(())
}

/// F9.
fn shards(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    program.works(&eval("whole", &[]))?;
    let expected = answers(&program, "whole")?;
    for &count in trial.some(&[3usize, 2, 7]) {
        let parts: Vec<String> =
            (0..count).map(|index| format!("parts-{count}/shard-{index:04}-of-{count:04}")).collect();
        trial.case(&format!("{count} shards"), || {
            for index in 0..count {
                program.works(&eval(&format!("parts-{count}"), &["--shard", &format!("{index}/{count}")]))?;
            }
            let mut order: Vec<&str> = parts.iter().map(String::as_str).rev().collect();
            order.rotate_left(1);
            let merged = format!("merged-{count}");
            program.works(&[&["report", "merge"][..], &order, &["--out", &merged]].concat())?;
            same(&expected, &answers(&program, &merged)?)
        });
    }
    let part = |index: usize| format!("parts-3/shard-{index:04}-of-0003");
    let (zero, one, two) = (part(0), part(1), part(2));
    for (name, parts, words) in [
        ("a part is missing", vec![&zero, &two], "in no part"),
        ("a part is a duplicate", vec![&zero, &one, &one, &two], "overlaps"),
    ] {
        trial.case(name, || {
            let parts: Vec<&str> = parts.iter().map(|part| part.as_str()).collect();
            program.refuses(&[&["report", "merge"][..], &parts, &["--out", "refused"]].concat(), words)?;
            Ok(())
        });
    }
    trial.case("a part of another seed", || {
        program.works(&eval("foreign", &["--seed", "1", "--shard", "1/3"]))?;
        let foreign = "foreign/shard-0001-of-0003";
        program.refuses(&["report", "merge", &zero, foreign, &two, "--out", "refused"], "does not belong")?;
        Ok(())
    });
    Ok(())
}

/// F11.
fn threads(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    program.works(&eval("first", &["--threads", "1", "--no-cache"]))?;
    let expected = answers(&program, "first")?;
    for &threads in trial.some(&["3", "8", "1", "2"]) {
        for cache in ["none", "cold", "warm"] {
            let out = format!("threads-{threads}-{cache}");
            trial.case(&out, || {
                if cache == "cold" {
                    let _ = std::fs::remove_dir_all(program.folder.join("cache"));
                }
                let more: &[&str] = if cache == "none" { &["--no-cache"] } else { &[] };
                program.works(&eval(&out, &[&["--threads", threads], more].concat()))?;
                same(&expected, &answers(&program, &out)?)
            });
        }
    }
    Ok(())
}

/// F12.
fn instructions(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    let expected = answered(&program, "best", &["--precision", "f32"])?;
    for isa in ["plain", "avx2", "avx512"] {
        let probe = program.run(&["--isa", isa, "version"])?;
        if !probe.status.success() {
            trial.note(&format!("skipped: {isa},"), "not on this machine");
            continue;
        }
        trial.case(isa, || {
            let found = answered(&program, isa, &["--precision", "f32", "--isa", isa, "--no-cache"])?;
            ensure!(found.len() == expected.len() && !found.is_empty(), "{} records", found.len());
            for (a, b) in expected.iter().zip(&found) {
                ensure!(a.0 == b.0, "another class");
                ensure!((a.1 - b.1).abs() < 1e-3, "confidence {} and {}", a.1, b.1);
            }
            Ok(())
        });
    }
    Ok(())
}

/// Class and confidence of every sample.
fn answered(program: &Program, out: &str, more: &[&str]) -> Result<Vec<(u64, f64)>> {
    program.works(&eval(out, more))?;
    let text = std::fs::read_to_string(program.folder.join(out).join("predictions.jsonl"))?;
    let parse = |line: &str| -> Result<(u64, f64)> {
        let record: serde_json::Value = serde_json::from_str(line)?;
        let answer = &record["answer"];
        Ok((answer["prediction"].as_u64().unwrap_or(u64::MAX), answer["confidence"].as_f64().unwrap_or(f64::NAN)))
    };
    text.lines().map(parse).collect()
}

/// F14.
fn surroundings(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    program.works(&eval("plain", &["--no-cache"]))?;
    let expected = answers(&program, "plain")?;
    let settings: [(&str, &str); 8] = [
        ("LC_ALL", "C"),
        ("LC_ALL", "tr_TR.UTF-8"),
        ("LC_ALL", "de_DE.UTF-8"),
        ("LANG", "ar_EG.UTF-8"),
        ("TZ", "Pacific/Kiritimati"),
        ("TZ", "America/Adak"),
        ("TZ", "nonsense"),
        ("SOURCE_DATE_EPOCH", "0"),
    ];
    for (number, (name, value)) in trial.some(&settings).iter().enumerate() {
        let out = format!("around-{number}");
        trial.case(&format!("{name}={value}"), || {
            let mut command = program.command(&eval(&out, &["--no-cache"]));
            command.env(name, value);
            let ended = super::program::finish(command)?;
            ended.check_sane()?;
            ensure!(ended.status.success(), "{}", ended.stderr.trim());
            same(&expected, &answers(&program, &out)?)
        });
    }
    Ok(())
}
