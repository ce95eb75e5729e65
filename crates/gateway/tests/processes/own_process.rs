//! Runner for tests that measure the whole process (files, memory, children): each runs in a process of its own.

use std::process::Command;

/// Runs the test again in a process of its own; in that process, runs `body`.
pub(crate) fn in_own_process(module: &str, test: &str, body: impl Future<Output = ()>) {
    const ALONE: &str = "GRIPFAST_TEST_ALONE";
    let (_, module) = module.split_once("::").unwrap();
    if std::env::var_os(ALONE).is_some() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(body);
    }
    let name = format!("{module}::{test}");
    let ran = Command::new(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--nocapture"])
        .env(ALONE, "yes")
        .output()
        .unwrap();
    let told = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{told}");
    assert!(told.contains("1 passed"), "no test is called {name}:\n{told}");
}
