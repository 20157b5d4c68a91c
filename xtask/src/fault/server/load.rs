//! S1, S2, S3, S14: more than can be done.

use super::{check_refusal, question};
use crate::fault::Trial;
use crate::serving::http::ask;
use crate::serving::load::{Outcome, Until, run};
use crate::serving::running::Running;
use anyhow::{Result, ensure};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const DEADLINE_MS: f64 = 30_000.0;

pub(super) fn crowd(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    let requests = (0..16).map(|number| question("zero-shot", 1, number)).collect::<Result<Vec<_>>>()?;
    run(server.address, 4, Until::Requests(100), None, &requests)?;
    let (before, most) = (server.memory()?, AtomicU64::new(0));
    let (total, clients) = (trial.count(10_000), trial.count(1_000));
    let over = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(server.memory().unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let outcome = run(server.address, clients, Until::Requests(total), None, &requests);
        over.store(true, Ordering::Relaxed);
        outcome
    })?;
    let grown = most.load(Ordering::Relaxed).saturating_sub(before) >> 20;
    for (&status, &count) in &outcome.statuses {
        trial.add(&format!("status {status}:"), count as u64);
    }
    trial.most("MB grown:", grown);
    trial.most("p99 of accepted in ms:", outcome.quantile(0.99) as u64);
    for _ in 0..total - outcome.count(0) {
        trial.case("answered", || Ok(()));
    }
    for _ in 0..outcome.count(0) {
        trial.case("answered", || anyhow::bail!("a connection broke"));
    }
    trial.case("statuses", || {
        let others: Vec<_> = outcome.statuses.keys().filter(|status| ![200, 429, 503].contains(status)).collect();
        ensure!(others.is_empty() && outcome.count(200) > 0, "found {:?}", outcome.statuses);
        Ok(())
    });
    trial.case("memory", || {
        ensure!(grown < 100, "grew by {grown} MB");
        Ok(())
    });
    trial.case("p99 below the deadline", || {
        ensure!(outcome.quantile(0.99) < DEADLINE_MS, "{} ms", outcome.quantile(0.99));
        Ok(())
    });
    let (binary, folder) = (trial.binary.clone(), trial.folder.clone());
    trial.case("a refusal says when to come back", || {
        let small = Running::start(&binary, &folder, &["--queue", "1"])?;
        let slow = question("zero", 256, 1)?;
        let refused = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| ask(small.address, &slow))).collect();
            let answers: Vec<_> = asked.into_iter().filter_map(|asked| asked.join().ok()?.ok()).collect();
            answers.into_iter().find(|answer| answer.status == 429)
        });
        check_refusal(&refused.ok_or_else(|| anyhow::anyhow!("nothing was refused"))?)
    });
    Ok(())
}

pub(super) fn overload(trial: &mut Trial) -> Result<()> {
    // A tower of real size: with the embedded one, refusing hundreds of requests a second is itself a tenth of the work.
    let server = Running::start(&trial.binary, &trial.folder, &["--model", "random:ViT-B-32"])?;
    let requests = (0..8).map(|number| question("zero", 8, number)).collect::<Result<Vec<_>>>()?;
    let seconds = (60.0 * trial.count(100) as f64 / 100.0).max(3.0);
    run(server.address, 4, Until::Seconds(2.0), None, &requests)?;
    let capacity = run(server.address, 16, Until::Seconds(seconds), None, &requests)?.per_second();
    trial.most("capacity per second:", capacity as u64);
    let at = |part: f64| -> Result<Outcome> {
        let clients = if part > 1.0 { 128 } else { 64 };
        run(server.address, clients, Until::Seconds(seconds), Some(capacity * part), &requests)
    };
    let usual = at(1.0)?;
    let (bound, half) = (usual.quantile(0.99) * 2.0, at(0.5)?);
    trial.most("p99 at 0.5 in ms:", half.quantile(0.99) as u64);
    trial.most("p99 at 1 in ms:", usual.quantile(0.99) as u64);
    for part in [2.0, 10.0] {
        let found = at(part)?;
        trial.most(
            &format!("served at {part} times, in % of the capacity:"),
            (100.0 * found.per_second() / capacity) as u64,
        );
        trial.case(&format!("goodput at {part} times"), || {
            ensure!(found.per_second() >= 0.9 * capacity, "{:.1} of {capacity:.1} per second", found.per_second());
            Ok(())
        });
        trial.case(&format!("p99 at {part} times"), || {
            // A full queue of 64 takes 64 / capacity, whatever is sent.
            let bound = bound.max(2.0 * 64.0 / capacity * 1e3);
            ensure!(found.quantile(0.99) <= bound, "{:.0} ms, allowed {bound:.0} ms", found.quantile(0.99));
            Ok(())
        });
        trial.case(&format!("statuses at {part} times"), || {
            let others: Vec<_> = found.statuses.keys().filter(|status| ![200, 429, 503].contains(status)).collect();
            ensure!(others.is_empty(), "{:?}", found.statuses);
            Ok(())
        });
    }
    Ok(())
}

pub(super) fn in_work(trial: &mut Trial) -> Result<()> {
    let config = trial.folder.join("four.toml");
    std::fs::write(&config, "[limits]\nworkers = 4\nqueue = 400\nbatch_views = 1\n")?;
    let server = Running::start(&trial.binary, &trial.folder, &["--config", &config.display().to_string()])?;
    let requests = [question("zero", 32, 1)?];
    let outcome = run(server.address, 200, Until::Requests(trial.count(1000).max(200)), None, &requests)?;
    let peak = server.metric("flatclip_queue_in_work_peak")?;
    trial.most("answered:", outcome.count(200) as u64);
    trial.case("at most 4", || {
        ensure!(peak == 4.0, "{peak} were worked on at the same time");
        Ok(())
    });
    trial.case("all answered", || {
        ensure!(outcome.statuses.len() == 1 && outcome.count(200) > 0, "{:?}", outcome.statuses);
        Ok(())
    });
    Ok(())
}

pub(super) fn soak(trial: &mut Trial) -> Result<()> {
    let seconds = (120.0 * trial.count(100) as f64 / 100.0).max(10.0);
    let found = crate::serving::soak::soak(&trial.binary, &trial.folder, seconds, 0.8)?;
    trial.most("requests:", found.requests as u64);
    trial.note("KB per 10 minutes:", format!("{:.0}", found.slope_kb));
    trial.case("no error", || {
        ensure!(found.errors == 0 && found.requests > 0, "{} errors in {} requests", found.errors, found.requests);
        Ok(())
    });
    trial.case("open files", || {
        ensure!(
            found.files_after <= found.files_before + 2,
            "{} before, {} after",
            found.files_before,
            found.files_after
        );
        Ok(())
    });
    trial.case("memory", || {
        ensure!(found.is_flat(), "grew by {:.0} KB per 10 minutes", found.slope_kb);
        Ok(())
    });
    Ok(())
}
