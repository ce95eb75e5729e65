//! Repeated restarts of a server leak no process, file or memory.

use crate::own_process::in_own_process;
use crate::test_host::TestHost;
use gripfast::State;
use gripfast_testkit::proc::{living_children, memory, open_files, signal, zombies};
use gripfast_testkit::wait::poll;
use rustix::process::Signal;

#[test]
fn g06_a_thousand_restarts_leave_no_process_no_file_and_no_memory_behind() {
    let name = "g06_a_thousand_restarts_leave_no_process_no_file_and_no_memory_behind";
    in_own_process(module_path!(), name, async {
        let test_host = TestHost::new();
        let mut pid = test_host.spawn_ready("demo", test_host.demo(&[])).await;
        let mut before = (0, 0);
        for restart in 0..1000 {
            // Once warm: threads, pools and buffers are there by then.
            if restart == 100 {
                before = (settled_files().await, memory(std::process::id()));
            }
            if restart % 2 == 0 {
                test_host.host.reconnect("demo").unwrap();
            } else {
                signal(pid, Signal::KILL);
            }
            pid = test_host.replaced("demo", pid).await;
            // A good call proves health, without which deaths would add up.
            test_host.echo("demo", "again").await;
        }
        let (files, occupied) = before;
        assert_eq!(test_host.status("demo").supervision.state, State::Ready);
        assert_eq!(test_host.processes(), [pid]);
        assert_eq!(living_children(std::process::id()).len(), 2, "the server and the watcher");
        assert!(zombies(std::process::id()).is_empty());
        assert_eq!(settled_files().await, files);
        let grown = memory(std::process::id()).saturating_sub(occupied);
        assert!(grown < 8 << 20, "{grown} bytes more after 900 restarts");
    });
}

/// Open files once those of the last child are closed: two equal counts in a row.
async fn settled_files() -> usize {
    let mut last = 0;
    poll(|| {
        let now = open_files();
        let same = now == last;
        last = now;
        same.then_some(now)
    })
    .await
    .unwrap()
}
