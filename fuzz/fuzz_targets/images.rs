#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flatclip_fuzz::read(&["jpeg"], bytes));
