//! S8, S9, S10: faults inside, readiness, the end.

use super::{image, question, question_json};
use crate::fault::Trial;
use crate::serving::http::{ask, get, post, post_json};
use crate::serving::load::{Until, run};
use crate::serving::running::Running;
use anyhow::{Result, ensure};
use flatclip_serve::{Config, Limits, Server};
use std::time::{Duration, Instant};

pub(super) fn panics(trial: &mut Trial) -> Result<()> {
    // Only a program can switch injected faults on, so this server runs in the test's own process.
    let config = Config { bind: "127.0.0.1:0".parse()?, faults: true, ..Config::default() };
    let server = Server::bind(config)?;
    let (address, stop) = (server.address(), server.stopper());
    let thread = std::thread::spawn(move || server.run());
    let body = question_json(&image(1)?).to_string();
    let request = |fault: &str| {
        let headers = format!("content-type: application/json\r\n{fault}");
        post("/v1/classify", &headers, body.as_bytes())
    };
    ask(address, &request(""))?;
    for number in 0..trial.count(20) {
        let place = if number % 2 == 0 { "handler" } else { "worker" };
        trial.case(&format!("{place} {number}"), || {
            // Others ask at the same time, so that batches have innocent members.
            let statuses = std::thread::scope(|scope| {
                let others: Vec<_> = (0..6).map(|_| scope.spawn(|| ask(address, &request("")))).collect();
                let failed = ask(address, &request(&format!("x-flatclip-fault: {place}\r\n")));
                let others: Result<Vec<u16>> = others
                    .into_iter()
                    .map(|one| Ok(one.join().map_err(|_| anyhow::anyhow!("a client panicked"))??.status))
                    .collect();
                Ok::<_, anyhow::Error>((failed?.status, others?))
            })?;
            ensure!(statuses.0 == 500, "status {}", statuses.0);
            ensure!(statuses.1.iter().all(|status| *status == 200), "others got {:?}", statuses.1);
            let start = Instant::now();
            ensure!(ask(address, &request(""))?.status == 200, "the next request failed");
            ensure!(start.elapsed() < Duration::from_secs(1), "the next one took {:?}", start.elapsed());
            Ok(())
        });
    }
    stop.stop();
    thread.join().map_err(|_| anyhow::anyhow!("the server panicked"))??;
    Ok(())
}

pub(super) fn terminate(trial: &mut Trial) -> Result<()> {
    for turn in 0..trial.count(10) {
        let mut server = Running::start(&trial.binary, &trial.folder, &[])?;
        let request = question("zero", 64, 1)?;
        let address = server.address;
        trial.case(&format!("turn {turn}"), || {
            std::thread::scope(|scope| {
                let load = scope.spawn(|| run(address, 12, Until::Seconds(4.0), None, &[request]));
                std::thread::sleep(Duration::from_millis(700 + 130 * turn as u64));
                let accepted = server.metric("flatclip_queue_admitted")?;
                server.signal("TERM")?;
                let start = Instant::now();
                let status = server.wait(Duration::from_secs(25))?;
                ensure!(status.code() == Some(0), "ended with {status}");
                ensure!(start.elapsed() < Duration::from_secs(25), "took {:?}", start.elapsed());
                let outcome = load.join().map_err(|_| anyhow::anyhow!("the load panicked"))??;
                ensure!(outcome.count(200) > 0 && accepted > 0.0, "nothing was under way");
                // Afterwards connections are refused, which is status 0.
                let others: Vec<_> = outcome.statuses.keys().filter(|status| ![0, 200].contains(status)).collect();
                ensure!(others.is_empty(), "{:?}", outcome.statuses);
                let log = server.logged();
                let answered =
                    log.lines().filter(|line| line.contains("/v1/classify") && line.contains("status=200")).count();
                ensure!(answered == outcome.count(200), "{answered} were answered, {} arrived", outcome.count(200));
                Ok(())
            })
        });
    }
    Ok(())
}

pub(super) fn health(trial: &mut Trial) -> Result<()> {
    let limits = Limits { workers: 1, queue: 1, deadline_ms: 120_000, ..Limits::default() };
    let config = Config { bind: "127.0.0.1:0".parse()?, limits, ..Config::default() };
    let server = Server::bind(config)?;
    let (address, stop) = (server.address(), server.stopper());
    let thread = std::thread::spawn(move || server.run());
    trial.case("live at once", || {
        ensure!(get(address, "/healthz")?.status == 200, "not live");
        Ok(())
    });
    trial.case("ready after the warm-up", || {
        let start = Instant::now();
        while get(address, "/readyz")?.status != 200 {
            ensure!(start.elapsed() < Duration::from_secs(60), "not ready");
            std::thread::sleep(Duration::from_millis(5));
        }
        ensure!(get(address, "/v2/health/ready")?.status == 200, "not ready in the other form");
        Ok(())
    });
    // Gradient steps over many classes: one request that takes longer than 5 s.
    let classes: Vec<String> = (0..2000).map(|number| format!("thing {number}")).collect();
    let mut body = question_json(&image(1)?);
    body["classes"] = classes.into();
    body["method"] = "tpt".into();
    body["options"] = serde_json::json!({ "steps": 64 });
    let slow = post_json("/v1/classify", &body);
    trial.case("not ready when the queue has been full for 5 s, and live all the time", || {
        let quick = question("zero", 8, 1)?;
        let (mut seen, start) = (false, Instant::now());
        std::thread::scope(|scope| {
            // A quick one may be before it in the queue of one.
            let slow = scope.spawn(|| {
                loop {
                    let answer = ask(address, &slow)?;
                    if answer.status != 429 {
                        return Ok::<_, anyhow::Error>(answer.status);
                    }
                }
            });
            while !slow.is_finished() {
                ensure!(get(address, "/healthz")?.status == 200, "not live");
                ask(address, &quick)?;
                seen |= get(address, "/readyz")?.status == 503;
                std::thread::sleep(Duration::from_millis(100));
            }
            let status = slow.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
            ensure!(status == 200, "the slow request got {status}");
            Ok(())
        })?;
        ensure!(seen, "it said that it was ready for {:?} with a full queue", start.elapsed());
        Ok(())
    });
    trial.case("ready again", || {
        let start = Instant::now();
        while get(address, "/readyz")?.status != 200 {
            ensure!(start.elapsed() < Duration::from_secs(30), "not ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    });
    stop.stop();
    thread.join().map_err(|_| anyhow::anyhow!("the server panicked"))??;
    Ok(())
}
