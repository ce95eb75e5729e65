//! Permission check of files and directories by owner and mode: those that another user could have changed are refused.
//! The file system is read by the host.

use std::fmt;

/// Owner and permission bits, as the file system reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileModes {
    /// User id of the owner.
    pub owner: u32,
    /// The mode; only its permission bits are used.
    pub mode: u32,
}

/// The way in which another user could have changed a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeableBy {
    /// The owner is neither root nor the user that runs this process.
    Owner {
        /// The owner.
        owner: u32,
        /// The user that runs this process.
        user: u32,
    },
    /// The group, or all users, may write it.
    Writers {
        /// The permission bits.
        mode: u32,
    },
}

/// Reaction to a file that another user could have changed: the config key `gateway.strict_modes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StrictModes {
    /// The file is refused.
    #[default]
    On,
    /// The file is used, with a warning.
    Off,
}

impl FileModes {
    const ROOT: u32 = 0;
    const PERMISSIONS: u32 = 0o777;
    const GROUP_WRITES: u32 = 0o020;
    const OTHERS_WRITE: u32 = 0o002;
    const OTHERS_READ: u32 = 0o004;

    /// The way in which a user other than root and `user`, who runs this process, could have changed it; `None` if
    /// there is none.
    #[must_use]
    pub fn changeable_by(self, user: u32) -> Option<ChangeableBy> {
        if self.owner != user && self.owner != Self::ROOT {
            return Some(ChangeableBy::Owner { owner: self.owner, user });
        }
        let mode = self.mode & Self::PERMISSIONS;
        (mode & (Self::GROUP_WRITES | Self::OTHERS_WRITE) != 0).then_some(ChangeableBy::Writers { mode })
    }

    /// Returns whether every user of the machine may read it.
    #[must_use]
    pub fn is_world_readable(self) -> bool {
        self.mode & Self::OTHERS_READ != 0
    }

    /// Returns whether the group or other users have any permission.
    #[must_use]
    pub fn is_shared(self) -> bool {
        self.mode & 0o077 != 0
    }
}

impl fmt::Display for ChangeableBy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Owner { owner, user } => {
                write!(out, "it belongs to user {owner}, but gripfast runs as user {user}")
            }
            Self::Writers { mode } => {
                let group = mode & FileModes::GROUP_WRITES != 0;
                let others = mode & FileModes::OTHERS_WRITE != 0;
                let who = match (group, others) {
                    (true, true) => "its group and all other users",
                    (true, false) => "its group",
                    (false, _) => "all other users",
                };
                write!(out, "{who} can write it (mode {mode:04o})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u32 = 1000;
    const OTHER: u32 = 1001;
    const ROOT: u32 = 0;

    #[test]
    fn g05_files_that_another_user_could_change_are_detected() {
        let owner = |owner| Some(ChangeableBy::Owner { owner, user: ME });
        let writers = |mode| Some(ChangeableBy::Writers { mode });
        let cases = [
            (ME, 0o600, None),
            (ME, 0o644, None),
            (ME, 0o755, None),
            (ROOT, 0o644, None),
            (ME, 0o100_600, None),
            (ME, 0o1755, None),
            (ME, 0o660, writers(0o660)),
            (ME, 0o664, writers(0o664)),
            (ME, 0o602, writers(0o602)),
            (ME, 0o777, writers(0o777)),
            (ME, 0o1777, writers(0o777)),
            (ME, 0o42_770, writers(0o770)),
            (ROOT, 0o664, writers(0o664)),
            (OTHER, 0o600, owner(OTHER)),
            (OTHER, 0o000, owner(OTHER)),
            (OTHER, 0o666, owner(OTHER)),
        ];
        for (owner, mode, expected) in cases {
            assert_eq!(FileModes { owner, mode }.changeable_by(ME), expected, "{owner} {mode:o}");
        }
    }

    #[test]
    fn root_refuses_files_of_other_users() {
        let theirs = FileModes { owner: ME, mode: 0o600 };
        assert_eq!(theirs.changeable_by(ROOT), Some(ChangeableBy::Owner { owner: ME, user: ROOT }));
        assert_eq!(FileModes { owner: ROOT, mode: 0o600 }.changeable_by(ROOT), None);
    }

    #[test]
    fn the_text_names_the_writers_and_the_mode() {
        let said = |mode| FileModes { owner: ME, mode }.changeable_by(ME).map(|found| found.to_string());
        assert_eq!(said(0o664).as_deref(), Some("its group can write it (mode 0664)"));
        assert_eq!(said(0o646).as_deref(), Some("all other users can write it (mode 0646)"));
        assert_eq!(said(0o777).as_deref(), Some("its group and all other users can write it (mode 0777)"));
        let owner = ChangeableBy::Owner { owner: OTHER, user: ME };
        assert_eq!(owner.to_string(), "it belongs to user 1001, but gripfast runs as user 1000");
    }

    #[test]
    fn read_permission_is_checked_separately() {
        let modes = |mode| FileModes { owner: ME, mode };
        assert!(modes(0o644).is_world_readable() && !modes(0o640).is_world_readable());
        assert!(modes(0o640).is_shared() && modes(0o601).is_shared() && !modes(0o600).is_shared());
    }
}
