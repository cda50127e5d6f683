//! A browser (Debian's chromium, headless), driven over pipes by the DevTools protocol: pages are opened, keys pressed, files chosen, and looked at.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::PATIENCE;

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: File,
    from: Receiver<Value>,
    session: String,
    number: u64,
}

fn chromium() -> PathBuf {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let known = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].map(PathBuf::from);
    let found = named.into_iter().chain(known).find(|path| path.exists());
    found.expect("no chromium: run `make setup`, or name one with CHROMIUM")
}

impl Browser {
    /// Starts one whose files lie in `work`.
    pub fn start(work: &Path) -> Browser {
        let (input, output) = (work.join("to-browser"), work.join("from-browser"));
        let made = Command::new("mkfifo").args([&input, &output]).status().expect("mkfifo can be run");
        assert!(made.success());
        // The browser reads from file 3 and writes to file 4.
        let script = "exec \"$0\" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                      --disable-background-networking --disable-component-update --disable-sync \
                      --window-size=1280,1600 --remote-debugging-pipe --user-data-dir=\"$1\" about:blank 3<\"$2\" 4>\"$3\"";
        let child = Command::new("sh")
            .args(["-c", script])
            .args([chromium(), work.join("profile"), input.clone(), output.clone()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(work.join("browser.log")).expect("the folder is ours"))
            .spawn()
            .expect("the shell can be run");
        let to = File::options().write(true).open(&input).expect("the browser opens its end");
        let out = File::open(&output).expect("the browser opens its end");
        let (sender, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                if let Ok(message) = serde_json::from_slice(&message)
                    && sender.send(message).is_err()
                {
                    return;
                }
            }
        });
        let mut browser = Browser { child, to, from, session: String::new(), number: 0 };
        let made = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": made["targetId"], "flatten": true});
        browser.session = browser.call("Target.attachToTarget", target)["sessionId"].as_str().unwrap().to_owned();
        browser.call("Page.enable", json!({}));
        browser
    }

    /// Has a command carried out, and waits for what comes of it.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(message.to_string().as_bytes()).and_then(|()| self.to.write_all(&[0])).expect("it listens");
        loop {
            let answer = self.from.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no answer to {method}"));
            if answer["method"] == "Page.javascriptDialogOpening" {
                // Whatever it asks, the answer is yes; its text is seen by who looks at the page.
                self.number += 1;
                let accept = json!({"id": self.number, "method": "Page.handleJavaScriptDialog", "params": {"accept": true}, "sessionId": self.session});
                self.to
                    .write_all(accept.to_string().as_bytes())
                    .and_then(|()| self.to.write_all(&[0]))
                    .expect("it listens");
                continue;
            }
            if answer["id"] == message["id"] {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// Opens a page.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        self.until("the page is there", "document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// What an expression says on the page.
    pub fn look(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let said = self.call("Runtime.evaluate", asked);
        assert!(said["exceptionDetails"].is_null(), "{expression}: {}", said["exceptionDetails"]);
        said["result"]["value"].clone()
    }

    /// Waits until an expression holds.
    pub fn until(&mut self, what: &str, expression: &str) {
        let began = std::time::Instant::now();
        while self.look(expression) != json!(true) {
            let page = |browser: &mut Browser| browser.look("document.body.innerText");
            assert!(began.elapsed() < PATIENCE, "waited in vain until {what}; the page says\n{}", page(self));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types a text where the focus is.
    pub fn type_in(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Presses a key: Tab, Enter or Space.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            _ => (32, " "),
        };
        let kind = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        let name = if key == "Space" { " " } else { key };
        self.call(
            "Input.dispatchKeyEvent",
            json!({"type": kind, "key": name, "code": key, "windowsVirtualKeyCode": code, "text": text}),
        );
        self.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": name, "code": key, "windowsVirtualKeyCode": code}),
        );
    }

    /// Goes on by the key Tab until an element has the focus.
    pub fn tab_to(&mut self, id: &str) {
        for _ in 0..80 {
            if self.look("document.activeElement?.id ?? ''") == json!(id) {
                return;
            }
            self.press("Tab");
        }
        panic!("the keyboard does not reach {id}");
    }

    /// Chooses a file in an element.
    pub fn choose_file(&mut self, id: &str, path: &Path) {
        let document = self.call("DOM.getDocument", json!({}));
        let found =
            self.call("DOM.querySelector", json!({"nodeId": document["root"]["nodeId"], "selector": format!("#{id}")}));
        self.call("DOM.setFileInputFiles", json!({"nodeId": found["nodeId"], "files": [path]}));
    }

    /// A picture of the whole page, as PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let taken = self.call("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}));
        let mut bits = (0u32, 0);
        let mut bytes = Vec::new();
        for letter in taken["data"].as_str().expect("a picture").bytes().filter(|letter| *letter != b'=') {
            let value = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'a'..=b'z' => letter - b'a' + 26,
                b'0'..=b'9' => letter - b'0' + 52,
                b'+' => 62,
                _ => 63,
            };
            bits = (bits.0 << 6 | u32::from(value), bits.1 + 6);
            if bits.1 >= 8 {
                bits.1 -= 8;
                bytes.push((bits.0 >> bits.1) as u8);
            }
        }
        bytes
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
