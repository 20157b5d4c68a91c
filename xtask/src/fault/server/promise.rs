//! S26: the promise. Whatever 64 hostile clients do within the limits, memory stays below that of the models and 512 MB,
//! `/healthz` answers within 100 ms, and an honest client beside them gets at least a quarter of its usual rate.

use super::{image, question};
use crate::fault::Trial;
use crate::serving::http::{Connection, ask, get, post, post_form, post_json};
use crate::serving::load::{Until, run};
use crate::serving::running::Running;
use anyhow::{Result, ensure};
use flatclip::Image;
use flatclip::image::sheet::encode_png;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const HOSTILE: usize = 64;
const ALLOWED_MB: u64 = 512;
const HEALTH_MS: f64 = 100.0;

/// What hostile clients send; made once.
struct Weapons {
    outputs: Vec<u8>,
    options: Vec<u8>,
    large: Vec<u8>,
    views: Vec<u8>,
    slice: Vec<u8>,
    session: Vec<u8>,
    announced: Vec<u8>,
    image: String,
}

impl Weapons {
    fn new() -> Result<Self> {
        let small = image(7)?;
        let image = crate::serving::base64(&small);
        let large = encode_png(&Image { width: 5000, height: 5000, rgb: vec![9; 75_000_000] })?;
        let texts: Vec<String> = (0..256).map(|number| format!("text {number}")).collect();
        let inputs = json!([{ "name": "text", "datatype": "BYTES", "shape": [256], "data": texts }]);
        let outputs = vec![json!({ "name": "text_embedding" }); 1000];
        let options = format!("{{\"classes\":[\"a\"],\"options\":{{\"x\":[{}0]}}}}", "{\"\":0},".repeat(2_000_000));
        let names: Vec<String> = (0..2000).map(|number| format!("thing {number}")).collect();
        let slice = json!({ "image": image, "classes": names, "points": 31 });
        let mut announced =
            format!("POST /v1/classify HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", 16 << 20);
        announced.push_str(&" ".repeat((16 << 20) - 10));
        Ok(Self {
            outputs: post_json("/v2/models/pocket/infer", &json!({ "inputs": inputs, "outputs": outputs })),
            options: post("/v1/classify", "content-type: application/json\r\n", options.as_bytes()),
            large: post_form("/v1/embed/image", &[], &vec![large.as_slice(); 32]),
            views: post_form(
                "/v1/classify",
                &[("classes", "fish,lamp"), ("method", "zero"), ("views", "256")],
                &[small.as_slice(); 8],
            ),
            slice: post_json("/v1/slice", &slice),
            session: post_json("/v1/sessions", &json!({ "classes": names, "method": "tda" })),
            announced: announced.into_bytes(),
            image,
        })
    }

    /// A class list that nobody asked for before.
    fn build(&self, number: usize) -> Vec<u8> {
        let names: Vec<String> = (0..500).map(|class| format!("thing {class} of {number}")).collect();
        post_json("/v1/classify", &json!({ "image": self.image, "classes": names, "ensemble": "imagenet80" }))
    }

    /// An answer that is long, for a client that does not read.
    fn unread(&self, number: usize) -> Vec<u8> {
        let names: Vec<String> = (0..2000)
            .map(|class| format!("thing {class} of {}, whose name is so long it does not fit", number % 4))
            .collect();
        let body =
            json!({ "images": vec![self.image.as_str(); 32], "classes": names, "template": "{}", "top_k": 2000 })
                .to_string();
        post("/v1/classify", "content-type: application/json\r\naccept: text/event-stream\r\n", body.as_bytes())
    }

    /// One act of a hostile client; whatever it is answered does not matter.
    fn act(&self, address: SocketAddr, client: usize, turn: usize) -> Result<()> {
        let hold = Duration::from_secs(3);
        match client % 10 {
            0 => drop(ask(address, &self.outputs)?),
            1 => drop(ask(address, &self.options)?),
            2 => drop(ask(address, &self.build(client + HOSTILE * turn))?),
            3 => {
                let mut connection = Connection::open(address)?;
                connection.send(&self.unread(turn))?;
                std::thread::sleep(hold);
            }
            4 => drop(ask(address, &self.large)?),
            5 => {
                let mut connection = Connection::open(address)?;
                connection.send(&self.announced)?;
                std::thread::sleep(hold);
            }
            6 => {
                let idle: Vec<_> = (0..20).filter_map(|_| Connection::open(address).ok()).collect();
                std::thread::sleep(hold);
                drop(idle);
            }
            7 => drop(ask(address, &self.session)?),
            8 => drop(ask(address, &self.views)?),
            _ => drop(ask(address, &self.slice)?),
        }
        Ok(())
    }
}

pub(super) fn promise(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    let address = server.address;
    let honest = [question("zero-shot", 1, 1)?];
    run(address, 1, Until::Requests(50), None, &honest)?;
    let usual = run(address, 1, Until::Seconds(5.0), None, &honest)?.per_second();
    let (models, weapons) = (server.memory()?, Weapons::new()?);
    let seconds = (60.0 * trial.count(100) as f64 / 100.0).max(5.0);
    let (over, most, acts) = (AtomicBool::new(false), AtomicU64::new(0), AtomicUsize::new(0));
    let (beside, health) = std::thread::scope(|scope| {
        for client in 0..HOSTILE {
            let (over, acts, weapons) = (&over, &acts, &weapons);
            scope.spawn(move || {
                for turn in 0.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let _ = weapons.act(address, client, turn);
                    acts.fetch_add(1, Ordering::Relaxed);
                    // They share the machine with the server, which is to be measured, not they.
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(server.memory().unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let health = scope.spawn(|| {
            let mut times = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let start = Instant::now();
                let is_live = get(address, "/healthz").is_ok_and(|answer| answer.status == 200);
                times.push(if is_live { start.elapsed().as_secs_f64() * 1e3 } else { f64::INFINITY });
                std::thread::sleep(Duration::from_millis(50));
            }
            times.sort_by(f64::total_cmp);
            times
        });
        let beside = run(address, 1, Until::Seconds(seconds), None, &honest);
        over.store(true, Ordering::Relaxed);
        let health = health.join().map_err(|_| anyhow::anyhow!("the probe panicked"))?;
        Ok::<_, anyhow::Error>((beside?, health))
    })?;
    let share = 100.0 * beside.per_second() / usual.max(1e-9);
    let above = most.load(Ordering::Relaxed).saturating_sub(models) >> 20;
    let at =
        |part: f64| health.get((health.len() as f64 * part) as usize).or(health.last()).copied().unwrap_or(f64::NAN);
    trial.most("hostile acts:", acts.load(Ordering::Relaxed) as u64);
    trial.most("MB above the models:", above);
    trial.note("/healthz p99 and slowest in ms:", format!("{:.0}, {:.0}", at(0.99), at(1.0)));
    trial.note("honest client, in % of its usual rate:", format!("{share:.0}"));
    for (status, count) in &beside.statuses {
        trial.add(&format!("honest client, status {status}:"), *count as u64);
    }
    trial.case("memory", || {
        ensure!(above < ALLOWED_MB, "{above} MB above the models");
        Ok(())
    });
    trial.case("/healthz", || {
        ensure!(at(0.99) <= HEALTH_MS, "p99 {:.0} ms", at(0.99));
        Ok(())
    });
    trial.case("the honest client", || {
        ensure!(share >= 25.0, "{share:.0} % of its usual rate");
        Ok(())
    });
    trial.case("memory comes back", || {
        std::thread::sleep(Duration::from_secs(12));
        let left = server.memory()?.saturating_sub(models) >> 20;
        ensure!(left < 256, "{left} MB are left");
        Ok(())
    });
    trial.case("no panic", || {
        ensure!(server.metric("flatclip_panics_total")? == 0.0, "it panicked");
        Ok(())
    });
    Ok(())
}
