//! S6, S7: bodies that lie about themselves, and images that are none.

use super::{ask_json, image, question_json};
use crate::fault::Trial;
use crate::serving::http::{Answer, Connection, ask, post, post_form};
use crate::serving::running::Running;
use anyhow::{Result, ensure};
use flatclip::Image;
use flatclip::image::DecodeOptions;

const LIMIT: usize = 16 << 20;
const FORM: &str = "content-type: multipart/form-data; boundary=xx\r\n";
const JSON: &str = "content-type: application/json\r\n";

/// What is sent, and the statuses that are right.
struct Case {
    name: String,
    request: Vec<u8>,
    statuses: Vec<u16>,
}

fn cases() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let mut add = |name: &str, request: Vec<u8>, statuses: &[u16]| {
        cases.push(Case { name: name.to_owned(), request, statuses: statuses.to_vec() });
    };
    let good = question_json(&image(1)?).to_string();
    let spaces = |count: usize| format!("{good}{}", " ".repeat(count - good.len())).into_bytes();
    for path in ["/v1/classify", "/v1/embed/image", "/hf/zero-shot-image-classification", "/v2/models/pocket/infer"] {
        add(&format!("{path}: empty"), post(path, JSON, b""), &[400]);
        add(&format!("{path}: limit + 1"), post(path, JSON, &vec![b' '; LIMIT + 1]), &[413]);
        add(&format!("{path}: nested"), post(path, JSON, "[".repeat(100_000).as_bytes()), &[400, 422]);
        add(&format!("{path}: nested fields"), post(path, JSON, "{\"a\":".repeat(20_000).as_bytes()), &[400, 422]);
        add(&format!("{path}: not UTF-8"), post(path, JSON, b"{\"image\":\"\xff\xfe\"}"), &[400, 422]);
    }
    add("limit - 1", post("/v1/classify", JSON, &spaces(LIMIT - 1)), &[200]);
    add("limit", post("/v1/classify", JSON, &spaces(LIMIT)), &[200]);
    add("text route above its own limit", post("/v1/embed/text", JSON, &vec![b' '; (1 << 20) + 1]), &[413]);
    add("gzip", post("/v1/classify", &format!("{JSON}content-encoding: gzip\r\n"), b"\x1f\x8b\x08"), &[415]);
    add("deflate", post("/v1/classify", &format!("{JSON}content-encoding: deflate\r\n"), b"x"), &[415]);
    add("no content type", post("/v1/classify", "", b"{}"), &[415]);
    add("wrong content type", post("/v1/classify", "content-type: text/xml\r\n", b"<a/>"), &[415]);
    let doubled = good.replacen('{', "{\"classes\":[\"a\"],", 1);
    add("doubled key", post("/v1/classify", JSON, doubled.as_bytes()), &[422]);
    add("unknown key", post("/v1/classify", JSON, good.replacen('{', "{\"colour\":1,", 1).as_bytes()), &[422]);
    add("a list", post("/v1/classify", JSON, b"[]"), &[422]);
    add("null", post("/v1/classify", JSON, b"null"), &[422]);
    add("number", post("/v1/classify", JSON, b"1e999"), &[400, 422]);
    add("cut JSON", post("/v1/classify", JSON, &good.as_bytes()[..good.len() / 2]), &[400]);
    add("form without boundary", post("/v1/classify", "content-type: multipart/form-data\r\n", b"x"), &[400]);
    add(
        "form that breaks off",
        post("/v1/classify", FORM, b"--xx\r\ncontent-disposition: form-data; name=\"image\"\r\n\r\nab"),
        &[400],
    );
    add("form of nonsense", post("/v1/classify", FORM, b"nonsense"), &[400]);
    add("empty form", post("/v1/classify", FORM, b"--xx--\r\n"), &[422, 400]);
    let parts = vec![("x", "y"); 10_000];
    add("10 000 parts", post_form("/v1/classify", &parts, &[]), &[400, 413]);
    let image = image(2)?;
    let images = vec![image.as_slice(); 33];
    add("33 images", post_form("/v1/classify", &[("classes", "a,b")], &images), &[413]);
    add("doubled field", post_form("/v1/classify", &[("classes", "a"), ("classes", "b")], &[&image]), &[400]);
    add("broken number", post_form("/v1/classify", &[("classes", "a"), ("views", "many")], &[&image]), &[400]);
    add(
        "binary length beyond the body",
        post("/v2/models/pocket/infer", "inference-header-content-length: 99999\r\n", b"{}"),
        &[400],
    );
    Ok(cases)
}

pub(super) fn table(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    let before = server.memory()?;
    for Case { name, request, statuses } in cases()? {
        trial.case(&name, || check(&ask(server.address, &request)?, &statuses));
    }
    trial.case("10 GB in chunks", || {
        let mut connection = Connection::open(server.address)?;
        connection.send(b"POST /v1/classify HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")?;
        let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 0x0010_0000], b"\r\n"].concat();
        let mut sent = 0u64;
        while sent < 10 << 30 && connection.send(&chunk).is_ok() {
            sent += 0x0010_0000;
        }
        ensure!(sent < 1 << 30, "{sent} bytes were taken");
        // The answer may be lost when the server closes under a client that does not stop sending.
        match connection.read() {
            Ok(answer) => check(&answer, &[413]),
            Err(_) => Ok(()),
        }
    });
    trial.case("fewer bytes than announced", || {
        let mut connection = Connection::open(server.address)?;
        connection.send(b"POST /v1/classify HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000\r\n\r\n{}")?;
        check(&connection.read()?, &[408])
    });
    let grown = server.memory()?.saturating_sub(before) >> 20;
    trial.most("MB grown:", grown);
    trial.case("memory", || {
        ensure!(grown < (LIMIT >> 20) as u64 * 3 + 20, "grew by {grown} MB");
        Ok(())
    });
    trial.case("alive", || {
        ensure!(server.get("/readyz")?.status == 200, "not ready");
        ensure!(server.metric("flatclip_panics_total")? == 0.0, "it panicked");
        Ok(())
    });
    Ok(())
}

fn check(answer: &Answer, statuses: &[u16]) -> Result<()> {
    ensure!(statuses.contains(&answer.status), "expected {statuses:?}, found {}: {}", answer.status, answer.text());
    ensure!(answer.status == 200 || !answer.code().is_empty(), "no code: {}", answer.text());
    Ok(())
}

/// Files of several formats, made here.
fn originals() -> Result<Vec<(&'static str, Vec<u8>)>> {
    let rgb: Vec<u8> = (0..40 * 30 * 3u32).map(|place| (place * 11 + place / 97) as u8).collect();
    let image = Image { width: 40, height: 30, rgb };
    let png = flatclip::image::sheet::encode_png(&image)?;
    let row = 40 * 3;
    let mut bmp = b"BM".to_vec();
    bmp.extend((54 + row * 30u32).to_le_bytes());
    bmp.extend([0; 4]);
    bmp.extend(54u32.to_le_bytes());
    bmp.extend(40u32.to_le_bytes());
    bmp.extend(40i32.to_le_bytes());
    bmp.extend(30i32.to_le_bytes());
    bmp.extend([1, 0, 24, 0]);
    bmp.extend([0; 24]);
    bmp.extend(&image.rgb);
    let gif = [
        b"GIF89a".as_slice(),
        &[2, 0, 2, 0, 0x80, 0, 0, 0, 0, 0, 255, 255, 255, 0x2c, 0, 0, 0, 0, 2, 0, 2, 0, 0, 2, 3, 0x44, 2, 5, 0, 0x3b],
    ]
    .concat();
    let jpeg = include_bytes!("../../../../fixtures/server/small.jpg").to_vec();
    Ok(vec![("png", png), ("bmp", bmp), ("gif", gif), ("jpeg", jpeg)])
}

/// Small files that say that they are huge.
fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let png = |side: u32| {
        let mut chunk = b"IHDR".to_vec();
        chunk.extend(side.to_be_bytes());
        chunk.extend(side.to_be_bytes());
        chunk.extend([8, 2, 0, 0, 0]);
        let crc = crc(&chunk);
        [b"\x89PNG\r\n\x1a\n".as_slice(), &13u32.to_be_bytes(), &chunk, &crc.to_be_bytes()].concat()
    };
    let gif = [
        b"GIF89a".as_slice(),
        &[
            255, 255, 255, 255, 0x80, 0, 0, 0, 0, 0, 255, 255, 255, 0x2c, 0, 0, 0, 0, 255, 255, 255, 255, 0, 2, 1, 0,
            0, 0x3b,
        ],
    ]
    .concat();
    let jpeg = [
        b"\xff\xd8\xff\xc0\x00\x11\x08".as_slice(),
        &65_500u16.to_be_bytes(),
        &65_500u16.to_be_bytes(),
        &[3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1],
    ]
    .concat();
    vec![
        ("png bomb", png(30_000)),
        ("png bomb of the largest side", png(0x7fff_ffff)),
        ("gif bomb", gif),
        ("jpeg bomb", jpeg),
    ]
}

/// CRC-32 as PNG wants it.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 };
    !bytes.iter().fold(!0u32, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

pub(super) fn images(trial: &mut Trial) -> Result<()> {
    let server = Running::start(&trial.binary, &trial.folder, &[])?;
    let mut connection = Connection::open(server.address)?;
    let options = DecodeOptions { max_pixels: 25_000_000, ..DecodeOptions::default() };
    let mut post = |trial: &mut Trial, name: &str, bytes: &[u8]| {
        let expected = flatclip::image::decode(bytes, &options).err().map(|error| error.code());
        trial.case(name, || {
            let answer = connection.ask(&post_form("/v1/classify", &[("classes", "fish,lamp")], &[bytes]))?;
            match expected {
                None => ensure!(answer.status == 200, "the library reads it, the server says {}", answer.text()),
                Some(code) => {
                    ensure!((400..500).contains(&answer.status), "status {}: {}", answer.status, answer.text());
                    ensure!(answer.code() == code, "expected {code}, found {}", answer.text());
                }
            }
            Ok(())
        });
        trial.add(if expected.is_none() { "read:" } else { "refused:" }, 1);
    };
    for (name, bytes) in bombs() {
        post(trial, name, &bytes);
    }
    let each = trial.count(5_000).div_ceil(8);
    for (name, bytes) in originals()? {
        post(trial, &format!("{name} whole"), &bytes);
        for number in 0..each {
            // A fixed walk over places and values: every run sends the same files.
            let place = (number * 7919 + number * number * 31) % bytes.len();
            let mut damaged = bytes.clone();
            damaged[place] ^= (number * 37 % 255 + 1) as u8;
            post(trial, &format!("{name} flip {place}"), &damaged);
            let cut = number * bytes.len() / each;
            post(trial, &format!("{name} cut {cut}"), &bytes[..cut]);
        }
    }
    trial.case("no panic", || {
        ensure!(server.metric("flatclip_panics_total")? == 0.0, "it panicked");
        Ok(())
    });
    ask_json(server.address, "/v1/classify", &question_json(&image(1)?))?;
    Ok(())
}
