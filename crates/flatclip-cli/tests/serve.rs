//! The command `serve`: its answers are those of `predict`, and the examples of its guide run.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_flatclip");
const CLASSES: &str = "fish,lamp,snail,boat,clock,bicycle";

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(BINARY)
            .args(["serve", "--bind", "127.0.0.1:0", "--quiet"])
            .args(arguments)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self { child, address }
    }

    fn ask(&self, request: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let status = text.get(9..12).unwrap().parse().unwrap();
        let body = text.split_once("\r\n\r\n").unwrap().1.as_bytes().to_vec();
        (status, body)
    }

    fn classify(&self, image: &[u8], fields: &[(&str, &str)]) -> Value {
        let mut body = Vec::new();
        for (name, value) in fields {
            body.extend(format!("--xx\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes());
        }
        body.extend(b"--xx\r\ncontent-disposition: form-data; name=\"image\"; filename=\"x\"\r\n\r\n");
        body.extend(image);
        body.extend(b"\r\n--xx--\r\n");
        let head = format!(
            "POST /v1/classify HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\
             content-type: multipart/form-data; boundary=xx\r\n\r\n",
            body.len()
        );
        let (status, answer) = self.ask(&[head.as_bytes(), &body].concat());
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
        serde_json::from_slice(&answer).unwrap()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal("TERM");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "ended with {status}");
    }
}

/// Two drawn images.
fn images(folder: &Path) -> [Vec<u8>; 2] {
    use flatclip_pocket::{Domain, SIDE, World, draw, png, scene};
    let image = |number| png(&draw(&scene(World::Test, Domain::Photo, number)), SIDE as u32, SIDE as u32);
    let both = [image(3), image(4)];
    std::fs::write(folder.join("photo.png"), &both[0]).unwrap();
    std::fs::write(folder.join("other.png"), &both[1]).unwrap();
    both
}

#[test]
fn answers_are_those_of_predict() {
    let folder = tempfile::tempdir().unwrap();
    let [image, _] = images(folder.path());
    let server = Server::start(folder.path(), &[]);
    for (method, views) in [("zero-shot", "1"), ("stss", "16"), ("zero", "16"), ("tpt", "8")] {
        let output = Command::new(BINARY)
            .args(["predict", "photo.png", "--classes", CLASSES, "--method", method, "--views", views, "--json"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let printed = &printed["results"][0];
        let answer = server.classify(&image, &[("classes", CLASSES), ("method", method), ("views", views)]);
        for key in ["prediction", "index", "top", "selected_views", "view_scores"] {
            // As text: the same digits, not only nearly the same numbers.
            assert_eq!(answer[key].to_string(), printed[key].to_string(), "{method} {key}");
        }
    }
}

#[test]
fn a_configuration_is_read_again_without_losing_anything() {
    let folder = tempfile::tempdir().unwrap();
    let [image, _] = images(folder.path());
    let write = |classes: &str| {
        let text = format!("[[models]]\nname = 'pocket'\n[[class_sets]]\nname = 'mine'\nclasses = {classes}\n");
        std::fs::write(folder.path().join("serve.toml"), text).unwrap();
    };
    write("['fish', 'lamp']");
    let server = Server::start(folder.path(), &["--config", "serve.toml"]);
    let count = || server.classify(&image, &[("class_set", "mine")])["top"].as_array().unwrap().len();
    assert_eq!(count(), 2);
    write("['fish', 'lamp', 'boat']");
    server.signal("HUP");
    let start = std::time::Instant::now();
    while count() != 3 {
        assert!(start.elapsed().as_secs() < 20, "the file was not read again");
    }
    write("[]");
    server.signal("HUP");
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(count(), 3, "a wrong file changed something");
}

#[test]
fn wrong_use_is_said_before_anything_is_served() {
    let run = |arguments: &[&str]| Command::new(BINARY).arg("serve").args(arguments).output().unwrap();
    let open = run(&["--bind", "0.0.0.0:0"]);
    let said = String::from_utf8_lossy(&open.stderr);
    assert!(open.status.code() == Some(2) && said.contains("key"), "{said}");
    for (arguments, word) in [
        (&["--bind", "nowhere"][..], "--bind"),
        (&["--config", "absent.toml"], "absent.toml"),
        (&["--prompt", "no-name"], "NAME=FILE"),
        (&["--model", "absent-model"], "absent-model"),
        (&["--queue", "0"], "limits.queue"),
    ] {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(word), "{arguments:?}: {said}");
    }
}

/// Every `sh` and `python` block of the guide, against a running server.
#[test]
fn the_examples_of_the_guide_run() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/serving.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let server = Server::start(folder.path(), &[]);
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    let mut run = 0;
    for (language, program) in [("sh", "sh"), ("python", "python3")] {
        if (language == "sh" && !has("curl")) || (language == "python" && !has("python3")) {
            eprintln!("{language} examples: SKIPPED, curl or python3 is not here");
            continue;
        }
        for block in guide.split(&format!("```{language}\n")).skip(1) {
            let code = block.split("\n```").next().unwrap().replace("127.0.0.1:8080", &server.address);
            let code = code.replace("curl -s", "curl -f -s");
            let output = Command::new(program).args(["-c", &code]).current_dir(folder.path()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !output.stdout.is_empty(), "{code}\n{said}");
            run += 1;
        }
    }
    assert!(run >= 7 || !has("curl") || !has("python3"), "only {run} examples were found");
}
