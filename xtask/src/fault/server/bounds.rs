//! S18 to S25: small requests that once took the machine, each with what it takes now.

use super::{CLASSES, ask_json, image, question, question_json};
use crate::fault::Trial;
use crate::serving::http::{Connection, ask, get, post, post_form, post_json};
use crate::serving::load::{Until, run};
use crate::serving::running::Running;
use anyhow::{Result, ensure};
use flatclip::Image;
use flatclip::image::sheet::encode_png;
use serde_json::json;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

/// Megabytes.
fn mb(bytes: u64) -> u64 {
    bytes >> 20
}

/// Asks, and notes seconds, status, the peak of the process above what it had, and what is left of it three seconds later.
fn cost(trial: &mut Trial, server: &Running, name: &str, request: &[u8]) -> Result<(u16, u64, u64)> {
    let before = server.memory()?;
    let start = Instant::now();
    let status = ask(server.address, request).map_or(0, |answer| answer.status);
    trial.note(&format!("{name}: seconds"), format!("{:.1}", start.elapsed().as_secs_f64()));
    std::thread::sleep(Duration::from_secs(3));
    let (peak, left) = (mb(server.peak()?.saturating_sub(before)), mb(server.memory()?.saturating_sub(before)));
    trial.note(&format!("{name}: status"), status.to_string());
    trial.most(&format!("{name}: MB at the peak"), peak);
    trial.most(&format!("{name}: MB left"), left);
    Ok((status, peak, left))
}

pub(super) fn outputs(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    let texts: Vec<String> = (0..256).map(|number| format!("text {number}")).collect();
    let inputs = json!([{ "name": "text", "datatype": "BYTES", "shape": [256], "data": texts }]);
    let named = |times: usize| {
        let outputs = vec![json!({ "name": "text_embedding" }); times];
        post_json("/v2/models/pocket/infer", &json!({ "inputs": inputs, "outputs": outputs }))
    };
    ask(server.address, &named(1))?;
    let (status, peak, _) = cost(trial, &server, "1000 times", &named(1000))?;
    trial.case("1000 times", || {
        ensure!((400..500).contains(&status), "status {status}");
        ensure!(peak < 64, "took {peak} MB");
        Ok(())
    });
    trial.case("twice", || {
        let status = ask(server.address, &named(2))?.status;
        ensure!(status == 422, "status {status}");
        Ok(())
    });
    Ok(())
}

pub(super) fn amplification(trial: &mut Trial) -> Result<()> {
    const SIZE: usize = (16 << 20) - 200;
    let repeated = |start: &str, piece: &str, end: &str| {
        format!("{start}{}{end}", piece.repeat((SIZE - start.len() - end.len()) / piece.len()))
    };
    let bodies = [
        (
            "options of objects",
            "/v1/classify",
            repeated("{\"classes\":[\"a\"],\"options\":{\"x\":[", "{\"\":0},", "0]}}"),
        ),
        ("options of lists", "/v1/classify", repeated("{\"options\":{\"x\":[", "[[[]]],", "0]}}")),
        ("many options", "/v1/classify", repeated("{\"options\":{", "\"\":0,", "\"x\":0}}")),
        ("empty names", "/v1/classify", repeated("{\"classes\":[", "\"\",", "\"\"]}")),
        ("empty images", "/v1/classify", repeated("{\"images\":[", "\"\",", "\"\"]}")),
        (
            "tensor of objects",
            "/v2/models/pocket/infer",
            repeated("{\"inputs\":[{\"name\":\"text\",\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[", "{},", "0]}]}"),
        ),
        (
            "tensor of empty texts",
            "/v2/models/pocket/infer",
            repeated(
                "{\"inputs\":[{\"name\":\"text\",\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[",
                "\"\",",
                "\"\"]}]}",
            ),
        ),
        ("parameters", "/v2/models/pocket/infer", repeated("{\"parameters\":{\"x\":[", "[0],", "0]},\"inputs\":[]}")),
    ];
    for (name, path, body) in bodies {
        // A server for each, so that its peak is its own.
        let server = Running::start(&trial.binary, &trial.folder, &[])?;
        let request = post(path, "content-type: application/json\r\n", body.as_bytes());
        let (status, peak, left) = cost(trial, &server, name, &request)?;
        trial.case(name, || {
            ensure!((400..500).contains(&status), "status {status}");
            ensure!(peak < 96 && left < 32, "took {peak} MB, {left} MB were left");
            Ok(())
        });
    }
    Ok(())
}

pub(super) fn builds(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &["--model", "random:ViT-B-32"])?;
    let address = server.address;
    let honest = question("zero-shot", 1, 1)?;
    ask(address, &honest)?;
    let usual = run(address, 1, Until::Seconds(5.0), None, std::slice::from_ref(&honest))?.per_second();
    let image = crate::serving::base64(&image(1)?);
    let long = |set: usize| {
        // Two different ones, so that they share nothing.
        let prompt =
            json!({ "image": image, "class_set": "imagenet", "ensemble": "imagenet80", "top_k": 1 + set, "seed": set });
        post_json("/v1/classify", &prompt)
    };
    let seconds = (35.0 * trial.count(100) as f64 / 100.0).max(5.0);
    let (beside, told) = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..2).map(|set| scope.spawn(move || ask(address, &long(set)))).collect();
        let beside = run(address, 1, Until::Seconds(seconds), None, std::slice::from_ref(&honest));
        let told: Vec<_> = asked.into_iter().filter_map(|one| one.join().ok()?.ok()).collect();
        Ok::<_, anyhow::Error>((beside?, told))
    })?;
    let share = 100.0 * beside.per_second() / usual.max(1e-9);
    trial.note("answers of another client, in % of its usual rate:", format!("{share:.0}"));
    for (set, answer) in told.iter().enumerate() {
        trial.note(&format!("request {set}: status"), answer.status.to_string());
    }
    trial.case("others are answered", || {
        ensure!(beside.statuses.len() == 1 && beside.count(200) > 0, "{:?}", beside.statuses);
        ensure!(share >= 25.0, "{share:.0} % of the usual rate");
        Ok(())
    });
    trial.case("it is told how long it takes", || {
        ensure!(told.len() == 2, "{} answers", told.len());
        for answer in &told {
            ensure!(matches!(answer.status, 200 | 413 | 503), "status {}: {}", answer.status, answer.text());
            ensure!(answer.status == 200 || answer.text().contains("80000 texts"), "no number: {}", answer.text());
        }
        Ok(())
    });
    trial.case("the end is not stretched", || {
        let start = Instant::now();
        drop(server);
        ensure!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        Ok(())
    });
    Ok(())
}

/// A request whose answer is long, by a client that does not read it.
fn deaf(address: SocketAddr, name: usize) -> Result<Connection> {
    let classes: Vec<String> =
        (0..2000).map(|number| format!("thing {number} of {name}, whose name is so long it does not fit")).collect();
    let images = vec![crate::serving::base64(&image(1)?); 32];
    let body = json!({ "images": images, "classes": classes, "template": "{}", "top_k": 2000 }).to_string();
    let headers = "content-type: application/json\r\naccept: text/event-stream\r\n";
    let mut connection = Connection::open(address)?;
    connection.send(&post("/v1/classify", headers, body.as_bytes()))?;
    Ok(connection)
}

pub(super) fn deafness(trial: &mut Trial) -> Result<()> {
    let mut server = Running::start(&trial.binary, &trial.folder, &[])?;
    let clients: Vec<Connection> = (0..2).map(|name| deaf(server.address, name)).collect::<Result<_>>()?;
    std::thread::sleep(Duration::from_secs(5));
    let honest = question("zero", 16, 1)?;
    let outcome = run(server.address, 1, Until::Seconds(10.0), None, &[honest])?;
    for (status, count) in &outcome.statuses {
        trial.add(&format!("status {status} of another client:"), *count as u64);
    }
    trial.case("another client is answered", || {
        ensure!(outcome.count(200) > 0 && outcome.statuses.len() == 1, "{:?}", outcome.statuses);
        Ok(())
    });
    let late: Vec<Connection> = (2..4).map(|name| deaf(server.address, name)).collect::<Result<_>>()?;
    std::thread::sleep(Duration::from_secs(2));
    let start = Instant::now();
    server.signal("TERM")?;
    let ended = server.wait(Duration::from_secs(40));
    trial.note("seconds from SIGTERM to the end:", format!("{:.1}", start.elapsed().as_secs_f64()));
    trial.case("SIGTERM is not stretched", || {
        ensure!(ended?.success() && start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
        Ok(())
    });
    drop((clients, late));
    Ok(())
}

pub(super) fn pixels(trial: &mut Trial) -> Result<()> {
    let image = encode_png(&Image { width: 5000, height: 5000, rgb: vec![9; 75_000_000] })?;
    let images = vec![image.as_slice(); 32];
    for (name, path, fields) in
        [("embed", "/v1/embed/image", &[][..]), ("classify", "/v1/classify", &[("classes", "fish,lamp")][..])]
    {
        let server = Running::start(&trial.binary, &trial.folder, &[])?;
        let (status, peak, left) = cost(trial, &server, name, &post_form(path, fields, &images))?;
        trial.case(name, || {
            ensure!(matches!(status, 200 | 504), "status {status}");
            ensure!(peak < 512 && left < 128, "took {peak} MB, {left} MB were left");
            Ok(())
        });
    }
    Ok(())
}

pub(super) fn announced(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    let head = format!("POST /v1/classify HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", 16 << 20);
    let part = |bytes: usize| -> Result<Connection> {
        let mut connection = Connection::open(server.address)?;
        connection.send(head.as_bytes())?;
        connection.send(&vec![b' '; bytes])?;
        Ok(connection)
    };
    let upload = post_form("/v1/classify", &[("classes", "fish,lamp")], &[&image(1)?]);
    for (name, bytes, sockets) in [("one byte each", 1, 16), ("all but ten bytes each", (16 << 20) - 10, 16)] {
        let open: Vec<Connection> = (0..sockets).filter_map(|_| part(bytes).ok()).collect();
        std::thread::sleep(Duration::from_secs(1));
        let outcome = run(server.address, 1, Until::Seconds(5.0), None, std::slice::from_ref(&upload))?;
        trial.add(&format!("{name}: uploads of another client answered"), outcome.count(200) as u64);
        trial.add(&format!("{name}: refused"), outcome.count(503) as u64);
        trial.case(name, || {
            ensure!(outcome.count(200) > 0 && outcome.count(503) == 0, "{:?}", outcome.statuses);
            Ok(())
        });
        drop(open);
    }
    Ok(())
}

pub(super) fn files(trial: &mut Trial) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" serve --bind 127.0.0.1:0 --offline"]).arg(&trial.binary);
    let server = Running::spawn(command, &trial.folder)?;
    let address = server.address;
    let idle: Vec<Connection> = (0..120).filter_map(|_| Connection::open(address).ok()).collect();
    let start = Instant::now();
    let status = get(address, "/healthz").map_or(0, |answer| answer.status);
    trial.note("120 sockets: seconds to an answer", format!("{:.1}", start.elapsed().as_secs_f64()));
    trial.case("120 sockets and 64 files", || {
        ensure!(
            status == 200 && start.elapsed() < Duration::from_secs(2),
            "status {status} after {:?}",
            start.elapsed()
        );
        let lines = server.logged().lines().filter(|line| line.contains("connection") && line.contains("WARN")).count();
        ensure!(lines == 1, "{lines} lines about it in the log");
        Ok(())
    });
    drop((idle, server));
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    let health = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", server.address).into_bytes();
    run(server.address, 4, Until::Requests(2000), None, std::slice::from_ref(&health))?;
    std::thread::sleep(Duration::from_secs(3));
    let (before, count) = (server.memory()?, trial.count(200_000));
    run(server.address, 4, Until::Requests(count), None, &[health])?;
    std::thread::sleep(Duration::from_secs(3));
    let grown = server.memory()?.saturating_sub(before);
    trial.note("bytes per request that nobody reads about:", format!("{:.1}", grown as f64 / count as f64));
    trial.case("metrics that nobody reads", || {
        ensure!(grown < 4 * count as u64 + (1 << 20), "{grown} bytes for {count} requests");
        Ok(())
    });
    Ok(())
}

pub(super) fn shares(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    let open = json!({ "classes": CLASSES, "method": "tda", "views": 1 });
    let mut opened = 0;
    for _ in 0..80 {
        opened += u64::from(ask_json(server.address, "/v1/sessions", &open)?.status == 201);
    }
    trial.most("sessions of one client, of 64:", opened);
    trial.case("sessions", || {
        ensure!(opened <= 32, "{opened} sessions");
        Ok(())
    });
    let body = question_json(&image(1)?).to_string();
    let status = |host: &str, origin: &str| -> Result<u16> {
        let origin = if origin.is_empty() { String::new() } else { format!("origin: {origin}\r\n") };
        let head = format!(
            "POST /v1/classify HTTP/1.1\r\nhost: {host}\r\n{origin}content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Ok(ask(server.address, &[head.as_bytes(), body.as_bytes()].concat())?.status)
    };
    let own = server.address.to_string();
    for (name, host, origin, expected) in [
        ("its own name", own.as_str(), String::new(), 200),
        ("its own page", own.as_str(), format!("http://{own}"), 200),
        ("another name", "rebound.example", String::new(), 403),
        ("a page elsewhere", own.as_str(), "http://elsewhere.example".to_owned(), 403),
        ("a page without origin", own.as_str(), "null".to_owned(), 403),
    ] {
        trial.case(name, || {
            let found = status(host, &origin)?;
            ensure!(found == expected, "expected {expected}, found {found}");
            Ok(())
        });
    }
    Ok(())
}
