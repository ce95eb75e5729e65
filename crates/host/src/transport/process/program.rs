//! Resolves a command to a file. The system's own search would do, but while it searches a `PATH` that is not ours, the
//! standard library copies the whole process for each start, and every page that we then write to is copied once more.
//! A command whose file is known is started without that.

use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Program to start.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    file: Option<PathBuf>,
}

impl Program {
    /// Resolves `command` with `path` as the `PATH`.
    pub(crate) fn resolve(command: &str, path: Option<&str>) -> Self {
        // A command with a slash is a file already. Windows searches more than `PATH`.
        let is_searched = cfg!(unix) && !command.is_empty() && !command.contains('/');
        let file = path.filter(|_| is_searched).and_then(|path| search(command, path));
        Self { name: command.to_owned(), file }
    }

    /// Returns a command for the resolved file, if one was found.
    pub(super) fn resolved_command(&self) -> Option<Command> {
        let mut command = Command::new(self.file.as_ref()?);
        // Programs with several names check which one they were called by.
        #[cfg(unix)]
        command.arg0(&self.name);
        Some(command)
    }

    /// Returns a command by name alone. The system's search skips files that may not be executed, and runs a script
    /// without a `#!` line with the shell.
    pub(super) fn named_command(&self) -> Command {
        Command::new(&self.name)
    }
}

/// Finds the first directory that has the command. A relative directory ends the search, because it means another place
/// to the child than to us.
fn search(command: &str, path: &str) -> Option<PathBuf> {
    let mut directories = path.split(':').map(Path::new).take_while(|directory| directory.is_absolute());
    directories.find_map(|directory| Some(directory.join(command)).filter(|file| is_executable(file)))
}

#[cfg(unix)]
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_file: &Path) -> bool {
    false
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::{Exit, ProcessTree};
    use super::*;
    use crate::transport::process::ChildLifetime;
    use std::cell::Cell;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc;
    use std::time::Duration;
    use tempfile::TempDir;
    use tokio_util::task::TaskTracker;

    fn put(dir: &TempDir, mode: u32, script: &str) -> PathBuf {
        let file = dir.path().join("tool");
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn the_first_executable_file_on_the_path_is_resolved() {
        let [none, plain, first, second] = [(); 4].map(|()| TempDir::new().unwrap());
        put(&plain, 0o644, "");
        let (wanted, _) = (put(&first, 0o755, ""), put(&second, 0o755, ""));
        std::fs::create_dir(none.path().join("tool")).unwrap();
        let path = [&none, &plain, &first, &second].map(|dir| dir.path().display().to_string()).join(":");
        assert_eq!(Program::resolve("tool", Some(&path)).file, Some(wanted));
        assert_eq!(Program::resolve("no-such-tool", Some(&path)).file, None);
        assert_eq!(Program::resolve("./tool", Some(&path)).file, None, "it is a file already");
        assert_eq!(
            Program::resolve("tool", Some(&format!("here:{path}"))).file,
            None,
            "a relative directory ends the search"
        );
        assert_eq!(Program::resolve("tool", None).file, None);
    }

    #[tokio::test]
    async fn a_program_gets_its_name_and_a_script_without_shebang_runs_in_the_shell() {
        let [linked, script] = [(); 2].map(|()| TempDir::new().unwrap());
        std::os::unix::fs::symlink("/bin/sh", linked.path().join("tool")).unwrap();
        put(&script, 0o755, "exit 7\n");
        for (dir, args) in [(&linked, &["-c", "[ $0 = tool ] && exit 7"][..]), (&script, &[])] {
            let path = format!("{}:/usr/bin:/bin", dir.path().display());
            let program = Program::resolve("tool", Some(&path));
            let started =
                ProcessTree::start(&program, TaskTracker::new().token(), ChildLifetime::Process, |child| {
                    child.args(args).env("PATH", &path);
                });
            let (tree, _pipes) = started.await.unwrap();
            assert_eq!(tree.exit_watch().wait().await, Exit { code: Some(7), signal: None }, "{args:?}");
        }
    }

    #[test]
    fn b08_starting_a_child_does_not_block_other_calls() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            // The only thread that can start a child is busy until another task has run.
            let (served, others) = mpsc::channel();
            let busy = tokio::task::spawn_blocking(move || others.recv_timeout(Duration::from_secs(60)));
            let program = Program::resolve("true", Some("/usr/bin:/bin"));
            let is_up = Cell::new(false);
            let starting = async {
                let started =
                    ProcessTree::start(&program, TaskTracker::new().token(), ChildLifetime::Process, |_| {})
                        .await;
                is_up.set(true);
                started
            };
            let serving = async {
                assert!(!is_up.get(), "it was started on a worker thread");
                served.send(()).unwrap();
            };
            let (started, ()) = tokio::join!(biased; starting, serving);
            started.unwrap();
            busy.await.unwrap().unwrap();
        });
    }

    #[test]
    fn g06_a_child_abandoned_during_its_start_is_tracked_until_it_is_gone() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            // No child can be started before this thread is free.
            let (go_on, word) = mpsc::channel();
            let busy = tokio::task::spawn_blocking(move || word.recv_timeout(Duration::from_secs(60)));
            let (program, children) = (Program::resolve("sleep", Some("/usr/bin:/bin")), TaskTracker::new());
            let mut starting =
                Box::pin(ProcessTree::start(&program, children.token(), ChildLifetime::Process, |child| {
                    child.arg("60");
                }));
            assert!(futures_util::poll!(&mut starting).is_pending());
            drop(starting);
            children.close();
            assert_eq!(children.len(), 1, "it is going to be started");
            go_on.send(()).unwrap();
            busy.await.unwrap().unwrap();
            children.wait().await;
        });
    }
}
