#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flatclip_fuzz::read(&["vocab.json", "merges.txt", "open_clip_config.json", "tokenizer.json"], bytes));
