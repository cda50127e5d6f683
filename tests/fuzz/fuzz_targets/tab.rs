//! Any text is read as a tab file, a cron line, or what a script prints, or refused; what was read of a tab file is read again from what is written of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::source::cron::Cron;
use proto::source::output;
use proto::source::tab::{Form, Tab};

fuzz_target!(|text: &str| {
    let (tab, errors) = Tab::parse(text);
    assert!(errors.iter().all(|error| error.line >= 1));
    for form in [Form::Hashes, Form::At] {
        let (again, _) = Tab::parse(&tab.write(form));
        assert_eq!(again.entries().count(), tab.entries().count(), "{form:?} of {text:?}");
    }
    for line in text.lines() {
        if let Ok(cron) = Cron::parse(line) {
            assert!(cron.next(1_794_000_000).is_some_and(|next| next > 1_794_000_000 && next % 60 == 0));
        }
        let _ = output::line(line);
    }
});
