//! S4, S5, S13: clients that leave, that dawdle, and that learn.

use super::{ask_json, image, question, question_json};
use crate::fault::Trial;
use crate::serving::http::Connection;
use crate::serving::load::{Until, run};
use crate::serving::running::Running;
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::time::{Duration, Instant};

pub(super) fn leave(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &["--queue", "2000"])?;
    let request = question("zero", 32, 1)?;
    let count = trial.count(1000).max(20);
    let mut staying = Vec::new();
    for number in 0..count {
        let mut connection = Connection::open(server.address)?;
        connection.send(&request)?;
        if number % 2 == 0 {
            staying.push(connection);
        } // the others leave here
    }
    for (number, mut connection) in staying.into_iter().enumerate() {
        trial.case(&format!("client {number}"), || {
            let status = connection.read()?.status;
            ensure!(status == 200, "status {status}");
            Ok(())
        });
    }
    let dropped = server.metric("flatclip_dropped_total")?;
    trial.most("dropped before work:", dropped as u64);
    trial.case("tickets come back within a second", || {
        let start = Instant::now();
        while server.metric("flatclip_queue_admitted")? > 0.0 {
            ensure!(start.elapsed() < Duration::from_secs(1), "still admitted");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    });
    trial.case("work of those that left is dropped", || {
        ensure!(dropped > 0.0, "nothing was dropped");
        Ok(())
    });
    Ok(())
}

pub(super) fn dawdle(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    let count = trial.count(500).min(900);
    let request = question("zero-shot", 1, 1)?;
    let mut slow: Vec<Connection> = (0..count).map(|_| Connection::open(server.address)).collect::<Result<_>>()?;
    let start = Instant::now();
    let outcome = std::thread::scope(|scope| {
        let others = scope.spawn(|| run(server.address, 2, Until::Seconds(10.0), None, &[request]));
        let head = b"POST /v1/classify HTTP/1.1\r\nhost: localhost\r\n";
        for byte in head.iter().take(9) {
            for connection in &mut slow {
                let _ = connection.send(&[*byte]);
            }
            std::thread::sleep(Duration::from_secs(1).saturating_sub(Duration::from_millis(5)));
        }
        others.join().map_err(|_| anyhow::anyhow!("the others panicked"))?
    })?;
    for (number, mut connection) in slow.into_iter().enumerate() {
        let left = Duration::from_secs(14).saturating_sub(start.elapsed()).max(Duration::from_millis(50));
        trial.case(&format!("connection {number}"), || {
            ensure!(connection.is_closed_within(left), "still open after {:?}", start.elapsed());
            Ok(())
        });
    }
    trial.most("p99 of the others in ms:", outcome.quantile(0.99) as u64);
    trial.case("others are served", || {
        ensure!(outcome.count(200) > 0 && outcome.statuses.len() == 1, "{:?}", outcome.statuses);
        ensure!(outcome.quantile(0.99) < 1000.0, "p99 {:.0} ms", outcome.quantile(0.99));
        Ok(())
    });
    Ok(())
}

pub(super) fn isolation(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    let address = server.address;
    let open = json!({ "classes": super::CLASSES, "method": "tda", "views": 4 });
    let session = || -> Result<String> {
        let id = ask_json(address, "/v1/sessions", &open)?.json()?["id"].as_str().context("no id")?.to_owned();
        Ok(format!("/v1/sessions/{id}"))
    };
    let ask = |session: &str, number: u32| -> Result<Vec<u8>> {
        let image = crate::serving::base64(&image(number)?);
        Ok(ask_json(address, &format!("{session}/classify"), &json!({ "image": image }))?.body)
    };
    let alone = session()?;
    let expected: Vec<Vec<u8>> = (0..10).map(|number| ask(&alone, number)).collect::<Result<_>>()?;
    let plain = ask_json(address, "/v1/classify", &question_json(&image(3)?))?.body;
    for turn in 0..trial.count(100).div_ceil(10) as u32 {
        let (noisy, quiet) = (session()?, session()?);
        for number in 0..10 {
            ask(&noisy, 1000 + turn * 10 + number)?;
            trial.case(&format!("probe {turn}.{number}"), || {
                ensure!(ask(&quiet, number)? == expected[number as usize], "another client's stream was seen");
                let again = ask_json(address, "/v1/classify", &question_json(&image(3)?))?.body;
                ensure!(again == plain, "a plain answer changed");
                Ok(())
            });
        }
    }
    Ok(())
}
