//! Downloads by the real binary from a hub on this machine that behaves badly.

use super::program::{Program, finish};
use super::readers::corpus;
use super::{Suite, Test, Trial};
use anyhow::{Context as _, Result, ensure};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub(super) const TESTS: &[Test] = &[Test {
    name: "F16",
    suite: Suite::Hub,
    what: "downloads: cut, wrong digest, 404, 503 three times, redirects in a circle, a page for a file, a stale part, no space",
    rule: "resumes or refuses; no bad file under its final name; the token is sent to the endpoint alone and never printed",
    patience: 90,
    run: downloads,
}];

const MODEL: &str = "ViT-B-16/openai";
const WEIGHTS: &str = "open_clip_model.safetensors";
const TOKEN: &str = "hf_secretsecret";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Good,
    CutsOnce,
    CutsAlways,
    WrongDigest,
    Missing,
    OverloadedThrice,
    OverloadedAlways,
    Circle,
    Page,
    TooMuch,
    ClosesAtOnce,
    Garbage,
}

/// Each manner, and whether the download must succeed in the end.
const MANNERS: &[(Manner, bool)] = &[
    (Manner::Good, true),
    (Manner::CutsOnce, true),
    (Manner::CutsAlways, false),
    (Manner::WrongDigest, false),
    (Manner::Missing, false),
    (Manner::OverloadedThrice, true),
    (Manner::OverloadedAlways, false),
    (Manner::Circle, false),
    (Manner::Page, false),
    (Manner::TooMuch, false),
    (Manner::ClosesAtOnce, false),
    (Manner::Garbage, false),
];

/// F16.
fn downloads(trial: &mut Trial) -> Result<()> {
    let program = Program::new(&trial.binary, &trial.folder);
    let files = corpus("safetensors")?;
    let weights = files.into_iter().find(|(name, _)| name == "small.safetensors").context("no small.safetensors")?.1;
    for &(manner, succeeds) in trial.some(MANNERS) {
        trial.case(&format!("{manner:?}"), || {
            let folder = program.folder.join(format!("{manner:?}"));
            let seen = Arc::new(Mutex::new(Vec::new()));
            let endpoint = serve(weights.clone(), manner, Arc::clone(&seen))?;
            let ended = fetch(&program, &endpoint, &folder, None)?;
            let file = folder.join(MODEL).join(WEIGHTS);
            if succeeds {
                ensure!(file.is_file(), "nothing was fetched: {}", ended.stderr.trim());
            } else {
                ensure!(ended.status.code() == Some(2), "exit {}: {}", ended.status, ended.stderr.trim());
            }
            if file.is_file() {
                ensure!(std::fs::read(&file)? == weights, "a bad file under its final name");
            }
            ensure!(!ended.stderr.contains(TOKEN), "the token was printed");
            check_token(&seen)
        });
    }
    trial.case("a part of another file is discarded", || {
        let folder = program.folder.join("stale");
        std::fs::create_dir_all(folder.join(MODEL))?;
        std::fs::write(folder.join(MODEL).join(format!("{WEIGHTS}.part")), vec![7; weights.len() / 2])?;
        let endpoint = serve(weights.clone(), Manner::Good, Arc::default())?;
        let ended = fetch(&program, &endpoint, &folder, None)?;
        let file = folder.join(MODEL).join(WEIGHTS);
        ensure!(file.is_file() && std::fs::read(&file)? == weights, "{}", ended.stderr.trim());
        Ok(())
    });
    trial.case("no space", || {
        let folder = program.folder.join("full");
        let endpoint = serve(weights.clone(), Manner::Good, Arc::default())?;
        let ended = fetch(&program, &endpoint, &folder, Some("trap '' XFSZ; ulimit -f 20"))?;
        // 4: the disk is full.
        ensure!(ended.status.code() == Some(4), "exit {}: {}", ended.status, ended.stderr.trim());
        ensure!(!folder.join(MODEL).join(WEIGHTS).exists(), "a part under its final name");
        let again = fetch(&program, &endpoint, &folder, None)?;
        ensure!(folder.join(MODEL).join(WEIGHTS).is_file(), "does not recover: {}", again.stderr.trim());
        Ok(())
    });
    Ok(())
}

/// The endpoint may have the token; the host that it points to may not.
fn check_token(seen: &Mutex<Vec<Request>>) -> Result<()> {
    let requests = seen.lock().map_err(|_| anyhow::anyhow!("the server panicked"))?;
    let has_token = |request: &&Request| request.head.contains(TOKEN);
    ensure!(
        requests.iter().filter(|r| !r.elsewhere).all(|r| has_token(&r)),
        "the endpoint was asked without the token"
    );
    ensure!(!requests.iter().any(|r| r.elsewhere && has_token(&r)), "the token went elsewhere");
    Ok(())
}

fn fetch(program: &Program, endpoint: &str, folder: &Path, limit: Option<&str>) -> Result<super::program::Ended> {
    let folder = folder.display().to_string();
    let arguments = ["embed", "--text", "a photo", "--model", MODEL, "--model-dir", &folder];
    let mut command = match limit {
        Some(limit) => program.limited(limit, &arguments),
        None => program.command(&arguments),
    };
    command.env("HF_ENDPOINT", endpoint).env("HF_TOKEN", TOKEN);
    let ended = finish(command)?;
    ended.check_sane()?;
    Ok(ended)
}

/// One request as it arrived.
struct Request {
    head: String,
    /// At the host that the endpoint points to.
    elsewhere: bool,
}

/// What one hub has and does.
struct HubServer {
    weights: Vec<u8>,
    manner: Manner,
    turns: AtomicUsize,
    seen: Arc<Mutex<Vec<Request>>>,
    /// Where the files lie: another host, as the real hub has one.
    files: String,
}

/// A hub that answers until this process ends; its address.
fn serve(weights: Vec<u8>, manner: Manner, seen: Arc<Mutex<Vec<Request>>>) -> Result<String> {
    let endpoint = TcpListener::bind("127.0.0.1:0")?;
    // Not every system has a second loopback address; another port is another host to the client as well.
    let elsewhere = TcpListener::bind("127.0.0.2:0").or_else(|_| TcpListener::bind("127.0.0.1:0"))?;
    let address = format!("http://{}", endpoint.local_addr()?);
    let files = format!("http://{}", elsewhere.local_addr()?);
    let server = Arc::new(HubServer { weights, manner, turns: AtomicUsize::new(0), seen, files });
    for (listener, is_elsewhere) in [(endpoint, false), (elsewhere, true)] {
        let server = Arc::clone(&server);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away in the middle is its own affair.
                let _ = server.answer(stream, is_elsewhere);
            }
        });
    }
    Ok(address)
}

/// The parts of a request that an answer depends on.
struct Asked {
    is_get: bool,
    path: String,
    from: usize,
    head: String,
}

fn read_request(stream: &TcpStream) -> Result<Asked> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut from) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(range) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            from = range.trim().trim_end_matches('-').parse().unwrap_or(0);
        }
        head += &line;
        if line.trim().is_empty() {
            break;
        }
    }
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
    Ok(Asked { is_get: method == "GET", path, from, head })
}

const CLOSE: &str = "Connection: close\r\n\r\n";

fn send(stream: &mut TcpStream, asked: &Asked, status: &str, more: &str, body: &[u8]) -> Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\n{more}Content-Length: {}\r\n{CLOSE}", body.len())?;
    if asked.is_get {
        stream.write_all(body)?;
    }
    Ok(())
}

impl HubServer {
    fn answer(&self, mut stream: TcpStream, elsewhere: bool) -> Result<()> {
        let asked = read_request(&stream)?;
        if let Ok(mut seen) = self.seen.lock() {
            seen.push(Request { head: asked.head.clone(), elsewhere });
        }
        match self.manner {
            Manner::ClosesAtOnce => return Ok(()),
            Manner::Garbage => return Ok(stream.write_all(&[0xff; 300])?),
            _ => {}
        }
        let stream = &mut stream;
        if asked.path.ends_with("open_clip_config.json") {
            return send(stream, &asked, "200 OK", "", br#"{"model_cfg": {"quick_gelu": true}}"#);
        }
        if !asked.path.ends_with(WEIGHTS) || self.manner == Manner::Missing {
            return send(stream, &asked, "404 Not Found", "", b"");
        }
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        if elsewhere { self.send_file(stream, &asked, turn) } else { self.describe(stream, &asked, turn) }
    }

    /// The endpoint's answer: what the file is, and where it lies.
    fn describe(&self, stream: &mut TcpStream, asked: &Asked, turn: usize) -> Result<()> {
        let (path, weights) = (&asked.path, &self.weights);
        match self.manner {
            Manner::OverloadedThrice if turn < 3 => send(stream, asked, "503 Busy", "Retry-After: 0\r\n", b""),
            Manner::OverloadedAlways => send(stream, asked, "503 Busy", "Retry-After: 0\r\n", b""),
            Manner::Circle => send(stream, asked, "302 Found", &format!("Location: {path}\r\n"), b""),
            Manner::Page => send(stream, asked, "200 OK", "", &[b"<!DOCTYPE html><html>", &weights[21..]].concat()),
            _ => {
                let mut digest = sha256(weights)?;
                if self.manner == Manner::WrongDigest {
                    digest.replace_range(..1, if digest.starts_with('0') { "1" } else { "0" });
                }
                let about = format!("X-Linked-Size: {}\r\nX-Linked-Etag: \"{digest}\"\r\n", weights.len());
                let place = format!("Location: {}/cdn{path}\r\n", self.files);
                send(stream, asked, "302 Found", &(about + &place), b"")
            }
        }
    }

    fn send_file(&self, stream: &mut TcpStream, asked: &Asked, turn: usize) -> Result<()> {
        let mut body = self.weights.get(asked.from..).unwrap_or_default().to_vec();
        if self.manner == Manner::TooMuch {
            body.push(0);
        }
        let size = self.weights.len();
        let range = format!("Content-Range: bytes {}-{}/{size}\r\n", asked.from, size - 1);
        let (status, range) = if asked.from > 0 { ("206 Partial Content", range.as_str()) } else { ("200 OK", "") };
        write!(stream, "HTTP/1.1 {status}\r\n{range}Content-Length: {}\r\n{CLOSE}", body.len())?;
        if self.manner == Manner::CutsAlways || (self.manner == Manner::CutsOnce && turn < 3) {
            body.truncate(body.len() / 2);
        }
        if asked.is_get {
            stream.write_all(&body)?;
        }
        Ok(())
    }
}

fn sha256(bytes: &[u8]) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), bytes)?;
    Ok(flatclip::weights::file_sha256(file.path())?)
}
