//! The command `serve`: its answers are those of `predict`, and the examples of its guide run.

use super::common::BINARY;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const CLASSES: &str = "fish,lamp,snail,boat,clock,bicycle";

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--bind", "127.0.0.1:0", "--quiet"]).args(arguments).current_dir(folder);
        Self::launch(&mut command)
    }

    fn launch(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
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

    /// The status of `GET path` with these headers.
    fn get(&self, path: &str, headers: &str) -> u16 {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        self.ask(request.as_bytes()).0
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

    /// Reads its files again until something holds.
    fn reload_until(&self, done: impl Fn() -> bool) {
        self.signal("HUP");
        let start = std::time::Instant::now();
        while !done() {
            assert!(start.elapsed().as_secs() < 20, "the files were not read again");
        }
    }

    /// Reads its files again, of which one is wrong.
    fn reload_wrong(&self) {
        self.signal("HUP");
        std::thread::sleep(std::time::Duration::from_millis(200));
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
    server.reload_until(|| count() == 3);
    write("[]");
    server.reload_wrong();
    assert_eq!(count(), 3, "a wrong file changed something");
}

#[test]
fn wrong_use_is_said_before_anything_is_served() {
    let run = |arguments: &[&str]| Command::new(BINARY).arg("serve").args(arguments).output().unwrap();
    let open = run(&["--bind", "0.0.0.0:0"]);
    let said = String::from_utf8_lossy(&open.stderr);
    for word in ["0.0.0.0:0", "--key-file", "FLATCLIP_SERVE_KEY", "--insecure"] {
        assert!(open.status.code() == Some(2) && said.contains(word), "{word}: {said}");
    }
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

#[test]
fn keys_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(folder.path().join("keys"), text).unwrap();
    write("first-key-0123456789\n");
    let server = Server::start(folder.path(), &["--key-file", "keys"]);
    let status = |key: &str| server.get("/v1/models", &format!("authorization: Bearer {key}\r\n"));
    assert_eq!((status("first-key-0123456789"), status("second-key-012345678")), (200, 401));
    // Both while clients change over, then the new one alone.
    write("first-key-0123456789\nsecond-key-012345678\n");
    server.reload_until(|| status("second-key-012345678") == 200);
    assert_eq!(status("first-key-0123456789"), 200);
    write("second-key-012345678\n");
    server.reload_until(|| status("first-key-0123456789") == 401);
    write("short");
    server.reload_wrong();
    assert_eq!(status("second-key-012345678"), 200, "a wrong file changed something");
}

/// Refusals of all kinds, then the log, the metrics and every answer are searched for the key.
#[test]
fn the_key_is_told_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let [image, _] = images(folder.path());
    let key = "correct-horse-battery-staple-0123456789";
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["serve", "--bind", "127.0.0.1:0", "-vv"]).env("FLATCLIP_SERVE_KEY", key).stderr(log);
    let server = Server::launch(command.current_dir(folder.path()));
    let mut told = String::new();
    let paths = ["/v1/limits", "/metrics", "/nothing", "/v1/models?key=correct-horse-battery-staple-0123456789"];
    let bodies: [(&str, &[u8]); 5] = [
        ("/v1/classify", b"{"),
        ("/v1/classify", &image),
        ("/v2/models/none/infer", b"{}"),
        ("/v1/sessions/none/classify", b"{}"),
        ("/nothing", b""),
    ];
    for guess in ["", "x", &key[1..], &key.to_uppercase(), key] {
        let headers = format!("host: localhost\r\nconnection: close\r\nauthorization: Bearer {guess}\r\n");
        assert_eq!(server.get(paths[0], &format!("authorization: Bearer {guess}\r\n")) == 200, guess == key);
        for path in paths {
            let (_, answer) = server.ask(format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes());
            told += &String::from_utf8_lossy(&answer);
        }
        for (path, body) in bodies {
            let length = body.len();
            let head = format!("POST {path} HTTP/1.1\r\n{headers}content-length: {length}\r\n\r\n");
            told += &String::from_utf8_lossy(&server.ask(&[head.as_bytes(), body].concat()).1);
        }
    }
    drop(server);
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("/v1/classify") && told.contains("route.unknown"), "nothing was logged or told: {log}");
    assert!(!log.contains("horse-battery") && !told.contains("horse-battery"), "{log}\n{told}");
}

#[test]
fn idle_sockets_beyond_the_open_files_keep_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" serve --bind 127.0.0.1:0", BINARY]).current_dir(folder.path());
    let server = Server::launch(command.stderr(log));
    let idle: Vec<_> = (0..120).filter_map(|_| TcpStream::connect(&server.address).ok()).collect();
    let start = std::time::Instant::now();
    assert_eq!(server.get("/healthz", ""), 200);
    assert!(start.elapsed().as_secs() < 3, "answered after {:?}", start.elapsed());
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    let lines = log.lines().filter(|line| line.contains("connection") && line.contains("WARN")).count();
    assert!(lines <= 1, "{lines} lines about it: {log}");
    drop(idle);
}

/// Everything but the address from the environment; the log has addresses only where that is asked for.
#[test]
fn every_flag_has_a_variable_and_requests_are_logged_with_their_ids() {
    let help = Command::new(BINARY).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let own = help.split("Global options").next().unwrap();
    for flag in own.split("\n      --").skip(1).chain(own.split("\n  -m, --").skip(1)) {
        let name = flag.split_whitespace().next().unwrap();
        let flag = flag.split("\n  -").next().unwrap();
        assert!(["openapi", "help", "version"].contains(&name) || flag.contains("[env:"), "{name}: {flag}");
    }
    let folder = tempfile::tempdir().unwrap();
    for addresses in [true, false] {
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(BINARY);
        command.args(["serve", "--json"]).current_dir(folder.path()).stderr(log);
        let variables =
            [("HOST", "localhost"), ("PORT", "0"), ("MODEL", "a=pocket,b=pocket"), ("QUEUE", "9"), ("NO_WARM_UP", "1")];
        command.envs(variables.map(|(name, value)| (format!("FLATCLIP_SERVE_{name}"), value)));
        command.env("FLATCLIP_SERVE_LOG_ADDRESSES", if addresses { "1" } else { "0" });
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.contains("\"address\"")).unwrap();
        let server = Server { child, address: line.split('"').nth(3).unwrap().to_owned() };
        assert_eq!(server.get("/v1/models/b", "x-request-id: mine-7\r\n"), 200);
        drop(server);
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
        let line = log.lines().find(|line| line.contains("mine-7")).unwrap_or_else(|| panic!("{log}"));
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["route"], &line["status"]), (&"/v1/models/{*model}".into(), &200.into()));
        let loopback = |text: &str| text.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        assert_eq!(line["client"].as_str().is_some_and(loopback), addresses, "{line}");
    }
}

/// A collector that takes one request, and a server whose requests it is told of.
#[cfg(feature = "otel")]
#[test]
fn traces_follow_those_of_clients() {
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(BINARY);
    command.args(["serve", "--bind", "127.0.0.1:0"]).current_dir(folder.path()).stderr(Stdio::null());
    let server = Server::launch(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint));
    let trace: Vec<u8> = (1..=16).collect();
    let hex: String = trace.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(server.get("/v1/models", &format!("traceparent: 00-{hex}-0102030405060708-01\r\n")), 200);
    let taken = std::thread::spawn(move || {
        let (mut stream, _) = collector.accept().unwrap();
        let (mut all, mut part) = (Vec::new(), [0; 4096]);
        while !all.windows(11).any(|window| window == b"http.route\x12") {
            let count = stream.read(&mut part).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&all));
            all.extend(&part[..count]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        all
    });
    drop(server); // what was not sent yet is sent at the end
    let taken = taken.join().unwrap();
    assert!(taken.starts_with(b"POST /v1/traces "), "{}", String::from_utf8_lossy(&taken));
    assert!(taken.windows(16).any(|window| window == trace), "another trace");
}

/// The samples of `packaging` fit each other and the server; programs that are here check their own.
#[test]
fn samples_for_deployment_are_true() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let (sample, compose, caddy, nginx) =
        (read("serve.toml"), read("compose.yaml"), read("Caddyfile"), read("nginx.conf"));
    let config = folder.join("serve.toml");
    let server = Server::start(folder, &["--config", config.to_str().unwrap()]);
    let settings: toml::Value = toml::from_str(&sample).unwrap();
    assert_eq!(server.get("/v1/models", ""), 200);
    // The name and the port that the proxies use, and the paths that they name.
    let name = settings["allowed_hosts"][0].as_str().unwrap();
    for host in [name, "flatclip:8080"] {
        let proxied = format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        assert_eq!(server.ask(proxied.as_bytes()).0, 200, "{host}");
    }
    assert!(compose.contains("\"flatclip:8080\""));
    let port = settings["bind"].as_str().unwrap().rsplit(':').next().unwrap();
    for (file, text) in [("Caddyfile", &caddy), ("nginx.conf", &nginx)] {
        assert!(text.contains(name) && text.contains(&format!("127.0.0.1:{port}")), "{file}");
        assert_eq!(server.get("/metrics", ""), 200);
        assert!(text.contains("/metrics"), "{file}: metrics are not for everybody");
    }
    assert!(
        caddy.contains("health_uri /readyz")
            && caddy.contains("flush_interval -1")
            && nginx.contains("proxy_buffering off")
    );
    // What the server takes, the proxies let through; they wait longer than it does.
    let limit = |name: &str| settings["limits"][name].as_integer().unwrap();
    let after = |text: &str, word: &str| -> i64 {
        let rest = text.split(word).nth(1).unwrap_or_else(|| panic!("{word}"));
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    for (text, size, wait) in
        [(&caddy, "max_size", "response_header_timeout"), (&nginx, "client_max_body_size", "proxy_read_timeout")]
    {
        assert_eq!(after(text, size) << 20, limit("body_bytes"), "{size}");
        assert!(after(text, wait) * 1000 > limit("deadline_ms"), "{wait}");
    }
    // What compose.yaml names is there.
    let help = Command::new(BINARY).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for word in
        compose.split(|c: char| !c.is_ascii_uppercase() && c != '_').filter(|word| word.starts_with("FLATCLIP_SERVE_"))
    {
        assert!(help.contains(word), "{word}");
    }
    for file in ["serve.toml", "Caddyfile", "Containerfile"] {
        assert!(compose.contains(file) && folder.join(file).is_file(), "{file}");
    }
    assert!(compose.contains(&format!("0.0.0.0:{port}")) && caddy.contains("FLATCLIP_UPSTREAM"));
    let checks: [(&str, &[&str], &[&str]); 3] = [
        ("caddy", &["version"], &["validate", "--adapter", "caddyfile", "--config", "Caddyfile"]),
        ("docker", &["compose", "version"], &["compose", "-f", "compose.yaml", "config", "--quiet"]),
        ("nginx", &["-v"], &["-t", "-c"]),
    ];
    for (program, probe, arguments) in checks {
        let here = Command::new(program).args(probe).output().is_ok_and(|done| done.status.success());
        if !here {
            eprintln!("{program}: SKIPPED, it is not here");
            continue;
        }
        let whole = tempfile::NamedTempFile::new().unwrap();
        // Without TLS, for which there is no certificate here.
        let plain = nginx
            .lines()
            .filter(|line| !line.contains("ssl_"))
            .collect::<Vec<_>>()
            .join("\n")
            .replace("443 ssl", "8443");
        std::fs::write(whole.path(), format!("events {{}}\npid /dev/null;\nhttp {{\n{plain}\n}}\n")).unwrap();
        let file = (program == "nginx").then(|| whole.path());
        let done = Command::new(program).args(arguments).args(file).current_dir(folder).output().unwrap();
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
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
