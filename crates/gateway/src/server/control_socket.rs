//! Control socket: a Unix socket in the state directory, through which CLI commands of the same user reach the gateway.
//!
//! This module manages the socket files and checks the user of the peer process, on both sides. The requests
//! themselves, and the ones that need the admin token, are handled as on the network.

use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};

/// Folder in the state directory with the control sockets of all gateways that use that directory.
pub const FOLDER: &str = "sockets";
/// Folder in the state directory with the sockets for clients of `gripfast stdio`.
pub const BRIDGES: &str = "bridges";
const SUFFIX: &str = ".sock";
/// Maximum length of a socket path: 104 bytes on BSD and macOS, 108 on Linux, including the final zero.
const LONGEST_PATH: usize = 103;
const ROOT: u32 = 0;

/// Path of the control socket of a gateway that listens on `listen`.
pub fn path(state_dir: &Path, listen: SocketAddr) -> PathBuf {
    state_dir.join(FOLDER).join(format!("{}_{}{SUFFIX}", listen.ip(), listen.port()))
}

fn bridge_path(state_dir: &Path, name: &str) -> PathBuf {
    state_dir.join(BRIDGES).join(format!("{name}{SUFFIX}"))
}

/// Listen addresses of a gateway that is reached at `address`, the most specific first.
pub fn listening_for(address: SocketAddr) -> Vec<SocketAddr> {
    let any_v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let any_v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let ips = match address.ip() {
        // A listener on `::` accepts connections of both families.
        ip @ IpAddr::V4(_) => vec![ip, any_v4, any_v6],
        ip @ IpAddr::V6(_) => vec![ip, any_v6],
    };
    ips.into_iter().map(|ip| SocketAddr::new(ip, address.port())).collect()
}

/// The process at the other end of a control socket belongs to another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the process at the other end belongs to another user (uid {uid})")]
pub struct OtherUser {
    /// User id of that process.
    pub uid: u32,
}

/// Checks that a process of user `peer` may use a socket of user `owner`.
fn check_uid(peer: u32, owner: u32) -> Result<(), OtherUser> {
    if peer == owner || peer == ROOT { Ok(()) } else { Err(OtherUser { uid: peer }) }
}

fn check_peer(stream: &UnixStream, owner: u32) -> io::Result<Result<(), OtherUser>> {
    Ok(check_uid(stream.peer_cred()?.uid(), owner))
}

/// Control socket of this gateway. Dropping it removes its file.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    file: FileId,
    owner: u32,
}

impl ControlSocket {
    /// Listens in `state_dir` for the gateway that listens on `listen`. Removes the sockets of gateways that have died.
    ///
    /// # Errors
    /// The folder cannot be created or belongs to another user, or a gateway with the same address uses this directory,
    /// for example in another container.
    pub async fn bind(state_dir: &Path, listen: SocketAddr) -> io::Result<Self> {
        Self::bind_at(path(state_dir, listen)).await
    }

    /// Listens in `state_dir` for clients of `gripfast stdio` that look for the gateway with this name.
    ///
    /// # Errors
    /// As for [`Self::bind`].
    pub async fn bind_bridge(state_dir: &Path, name: &str) -> io::Result<Self> {
        Self::bind_at(bridge_path(state_dir, name)).await
    }

    async fn bind_at(path: PathBuf) -> io::Result<Self> {
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        tighten(&folder)?;
        let owner = checked_owner(&folder)?;
        remove_stale(&folder).await;
        if FileId::of(&path).is_some() {
            let what = format!("another gateway listens on `{}`", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        // Created under a temporary name until it listens: before that it would look like the socket of a dead gateway.
        let draft = tempfile::Builder::new().prefix(".").make_in(&folder, |draft| {
            let reachable = Reachable::of(draft)?;
            std::os::unix::net::UnixListener::bind(&reachable.path)
        })?;
        fs::set_permissions(draft.path(), Permissions::from_mode(0o600))?;
        draft.as_file().set_nonblocking(true)?;
        let listener = draft.persist(&path).map_err(|refused| refused.error)?;
        let file = FileId::of(&path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, path, file, owner })
    }

    /// Accepts the next connection, and checks the user of its process.
    ///
    /// # Errors
    /// The system refuses, or the connection is closed already.
    pub async fn accept(&self) -> io::Result<(UnixStream, Result<(), OtherUser>)> {
        let (stream, _) = self.listener.accept().await?;
        let checked = check_peer(&stream, self.owner)?;
        Ok((stream, checked))
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // A gateway that was started meanwhile may have created its own file there.
        if FileId::of(&self.path) == Some(self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Control socket of a running gateway.
#[derive(Debug, Clone)]
pub struct FoundSocket {
    path: PathBuf,
    owner: u32,
}

/// Finds the gateway that uses `state_dir` and listens on one of `addresses`. `None` if there is none.
///
/// # Errors
/// There is a socket that cannot be used, or not safely.
pub async fn find(state_dir: &Path, addresses: &[SocketAddr]) -> io::Result<Option<FoundSocket>> {
    let paths = addresses.iter().map(|address| path(state_dir, *address));
    find_first(&state_dir.join(FOLDER), paths).await
}

/// Finds the gateway with this name that serves clients of `gripfast stdio` in `state_dir`.
///
/// # Errors
/// As for [`find`].
pub async fn find_bridge(state_dir: &Path, name: &str) -> io::Result<Option<FoundSocket>> {
    find_first(&state_dir.join(BRIDGES), [bridge_path(state_dir, name)]).await
}

async fn find_first(
    folder: &Path,
    paths: impl IntoIterator<Item = PathBuf>,
) -> io::Result<Option<FoundSocket>> {
    let owner = match checked_owner(folder) {
        Ok(owner) => owner,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for path in paths {
        let found = FoundSocket { path, owner };
        match found.connect().await {
            Ok(_) => return Ok(Some(found)),
            Err(error) if is_stale(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

impl FoundSocket {
    /// Connects to the gateway.
    ///
    /// # Errors
    /// No process listens any more, or a process of another user does.
    pub async fn connect(&self) -> io::Result<UnixStream> {
        let reachable = Reachable::of(&self.path)?;
        let stream = UnixStream::connect(&reachable.path).await?;
        check_peer(&stream, self.owner)?
            .map_err(|other| io::Error::new(io::ErrorKind::PermissionDenied, other))?;
        Ok(stream)
    }

    /// User id of the gateway.
    pub fn owner(&self) -> u32 {
        self.owner
    }
}

/// Tests if the error of a connection attempt means that no process listens.
fn is_stale(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Owner of the socket folder, which must be the current user; root accepts any owner.
fn checked_owner(folder: &Path) -> io::Result<u32> {
    let metadata = fs::symlink_metadata(folder)?;
    let (owner, euid) = (metadata.uid(), geteuid().as_raw());
    let objection = if !metadata.is_dir() {
        "is not a directory".to_owned()
    } else if owner != euid && euid != ROOT {
        format!("belongs to another user (uid {owner})")
    } else if metadata.mode() & 0o022 != 0 {
        "can be written to by other users".to_owned()
    } else {
        return Ok(owner);
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("`{}` {objection}", folder.display())))
}

/// Removes the permissions of other users from an existing folder.
fn tighten(folder: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    if metadata.is_dir() && metadata.mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Removes the sockets of gateways that died without doing so.
async fn remove_stale(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let before = FileId::of(&path);
        if !entry.file_name().to_string_lossy().ends_with(SUFFIX) {
            continue;
        }
        let Ok(reachable) = Reachable::of(&path) else { continue };
        let refused = UnixStream::connect(&reachable.path).await.is_err_and(|error| is_stale(&error));
        // A gateway that starts at this moment may have created its own file there.
        if refused && FileId::of(&path) == before {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Identifies a file independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::symlink_metadata(path).ok()?;
        Some(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Path that fits into a socket address.
struct Reachable {
    path: PathBuf,
    /// Folder that the path refers to, kept open while it is used.
    _folder: Option<File>,
}

impl Reachable {
    fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= LONGEST_PATH {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        Self::through_folder(path)
    }

    /// Uses the short `/proc/self/fd` path of an open folder.
    #[cfg(target_os = "linux")]
    fn through_folder(path: &Path) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = File::open(folder)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }

    #[cfg(not(target_os = "linux"))]
    fn through_folder(path: &Path) -> io::Result<Self> {
        let what = format!(
            "`{}` is longer than the {LONGEST_PATH} bytes that a socket's path may have; `--state-dir` names a \
             directory with a shorter one",
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    use rustix::process::Uid;

    const NOBODY: u32 = 65534;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn g05_only_the_owner_and_root_may_use_the_socket() {
        assert_eq!((check_uid(1000, 1000), check_uid(0, 1000), check_uid(0, 0)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(check_uid(1001, 1000), Err(OtherUser { uid: 1001 }));
        assert_eq!(
            check_uid(1000, 0),
            Err(OtherUser { uid: 1000 }),
            "the gateway of root is not for other users"
        );
    }

    #[test]
    fn a_gateway_that_listens_on_every_address_is_found_by_each() {
        let listening = |text: &str| -> Vec<String> {
            listening_for(address(text)).iter().map(ToString::to_string).collect()
        };
        assert_eq!(listening("127.0.0.1:7331"), ["127.0.0.1:7331", "0.0.0.0:7331", "[::]:7331"]);
        assert_eq!(listening("[::1]:80"), ["[::1]:80", "[::]:80"]);
    }

    #[tokio::test]
    async fn a_socket_is_found_by_its_address_while_its_gateway_runs() {
        let state = tempfile::tempdir().unwrap();
        let (one, other) = (address("127.0.0.1:7331"), address("[::1]:7331"));
        assert!(find(state.path(), &[one]).await.unwrap().is_none());
        let gateway = ControlSocket::bind(state.path(), one).await.unwrap();
        assert!(find(state.path(), &[other]).await.unwrap().is_none());
        let found = find(state.path(), &[other, one]).await.unwrap().unwrap();
        let (connected, accepted) = tokio::join!(found.connect(), gateway.accept());
        assert!(connected.is_ok() && accepted.unwrap().1 == Ok(()));
        assert_eq!(found.owner(), geteuid().as_raw());
        drop(gateway);
        assert!(is_stale(&found.connect().await.unwrap_err()));
        assert!(find(state.path(), &[one]).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_socket_is_replaced_only_after_its_gateway_died() {
        let state = tempfile::tempdir().unwrap();
        let listen = address("127.0.0.1:7331");
        let gateway = ControlSocket::bind(state.path(), listen).await.unwrap();
        let refused = ControlSocket::bind(state.path(), listen).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{refused}");
        let other = ControlSocket::bind(state.path(), address("127.0.0.1:7332")).await.unwrap();
        assert!(find(state.path(), &[listen]).await.unwrap().is_some(), "a third has not removed it");
        // Simulates two gateways that die without removing their sockets.
        for dead in [gateway, other] {
            let kept = state.path().join("kept");
            fs::rename(&dead.path, &kept).unwrap();
            let path = dead.path.clone();
            drop(dead);
            fs::rename(&kept, path).unwrap();
        }
        let successor = ControlSocket::bind(state.path(), listen).await.unwrap();
        assert_eq!(fs::read_dir(state.path().join(FOLDER)).unwrap().count(), 1, "both are gone");
        assert!(find(state.path(), &[listen]).await.unwrap().is_some());
        drop(successor);
    }

    #[tokio::test]
    async fn a_gateway_that_ends_leaves_the_socket_of_its_successor() {
        let state = tempfile::tempdir().unwrap();
        let listen = address("127.0.0.1:7331");
        let ending = ControlSocket::bind(state.path(), listen).await.unwrap();
        fs::remove_file(&ending.path).unwrap();
        let _successor = ControlSocket::bind(state.path(), listen).await.unwrap();
        drop(ending);
        assert!(find(state.path(), &[listen]).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn g05_a_folder_writable_by_others_is_refused_and_tightened_at_the_next_bind() {
        let state = tempfile::tempdir().unwrap();
        let (folder, listen) = (state.path().join(FOLDER), address("127.0.0.1:7331"));
        let _gateway = ControlSocket::bind(state.path(), listen).await.unwrap();
        let mode = || fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        fs::set_permissions(&folder, Permissions::from_mode(0o770)).unwrap();
        let refused = find(state.path(), &[listen]).await.unwrap_err();
        assert!(refused.to_string().contains("can be written to by other users"), "{refused}");
        let _other = ControlSocket::bind(state.path(), address("127.0.0.1:7332")).await.unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[tokio::test]
    async fn g05_a_symlinked_socket_folder_is_not_followed() {
        let (state, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let listen = address("127.0.0.1:7331");
        let _gateway = ControlSocket::bind(other.path(), listen).await.unwrap();
        std::os::unix::fs::symlink(other.path().join(FOLDER), state.path().join(FOLDER)).unwrap();
        assert!(find(state.path(), &[listen]).await.is_err());
        assert!(ControlSocket::bind(state.path(), listen).await.is_err());
    }

    /// Runs `work` as another user, which needs root; `None` for other users.
    fn as_nobody<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if !geteuid().is_root() {
            return None;
        }
        let thread = std::thread::spawn(move || {
            // Only for this thread.
            rustix::thread::set_thread_uid(Uid::from_raw(NOBODY)).unwrap();
            work()
        });
        Some(thread.join().unwrap())
    }

    #[tokio::test]
    async fn g05_a_listener_of_another_user_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let listen_on = address("127.0.0.1:7331");
        DirBuilder::new().mode(0o700).create(state.path().join(FOLDER)).unwrap();
        let path = path(state.path(), listen_on);
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        // The peer credentials of a socket are set by `listen`.
        let Some(_listener) = as_nobody(move || listen(&listener, 8).map(|()| listener).unwrap()) else {
            return;
        };
        let refused = find(state.path(), &[listen_on]).await.unwrap_err();
        assert!(refused.to_string().contains("another user (uid 65534)"), "{refused}");
    }

    #[tokio::test]
    async fn g05_a_folder_of_another_user_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let listen = address("127.0.0.1:7331");
        let _gateway = ControlSocket::bind(state.path(), listen).await.unwrap();
        fs::set_permissions(state.path(), Permissions::from_mode(0o755)).unwrap();
        let folder = state.path().join(FOLDER);
        let Some(judged) = as_nobody(move || checked_owner(&folder)) else { return };
        let refused = judged.unwrap_err();
        assert!(refused.to_string().contains("belongs to another user (uid 0)"), "{refused}");
    }
}
