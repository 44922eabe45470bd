//! A small disk that can be filled: a tmpfs in a mount namespace of its own.
//!
//! Nothing stays mounted. The mount lives in the namespace of a holder process and of the servers
//! on it. It goes with the last of them, also when they are killed. No other process sees it.
//! Without root, a user namespace with the current user in it gives the right to mount.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use tuskline_postgres::{Account, Child, die_with_parent};

use super::site::Site;
use super::tools::Skipped;

/// For the user `$1` and group `$2`: mounts each following number of bytes on the directory after it,
/// says so, and holds them.
const HOLDER: &str = r#"
owner="uid=$1,gid=$2"
shift 2
while [ $# -gt 0 ]; do
    mount -t tmpfs -o "size=$1,mode=0700,$owner" tmpfs "$2" || exit 1
    shift 2
done
echo mounted
exec sleep 2147483647
"#;

/// Longest wait for the mount.
const MOUNT_LIMIT: Duration = Duration::from_secs(10);

/// The name of the file that takes the space.
const FILLER: &str = "filler";

/// A disk of a chosen size.
#[derive(Debug)]
pub struct Volume {
    holder: Arc<Holder>,
    mount_point: PathBuf,
}

/// The process whose namespace the mounts live in.
#[derive(Debug)]
struct Holder(Child);

impl Volume {
    /// Makes a volume of `size_bytes`, or reports the reason loudly on standard error. The tools
    /// may be missing, or neither root nor user namespaces allowed.
    ///
    /// # Errors
    /// When its directory or its holder cannot be made.
    pub async fn mount(site: &Site, size_bytes: u64) -> Result<Option<Self>> {
        match Self::try_mount(site, size_bytes).await? {
            Ok(volume) => Ok(Some(volume)),
            Err(skipped) => {
                eprintln!("{skipped}");
                Ok(None)
            }
        }
    }

    /// As [`Volume::mount`], with the reason as a value.
    ///
    /// # Errors
    /// As [`Volume::mount`].
    pub async fn try_mount(site: &Site, size_bytes: u64) -> Result<Result<Self, Skipped>> {
        let made = Self::try_mount_all(site, [size_bytes]).await?;
        Ok(made.map(|[volume]| volume))
    }

    /// As [`Volume::try_mount`], several that one server sees.
    ///
    /// # Errors
    /// As [`Volume::mount`].
    pub async fn try_mount_all<const N: usize>(
        site: &Site,
        sizes_bytes: [u64; N],
    ) -> Result<Result<[Self; N], Skipped>> {
        let what = "full disks";
        if let Some(missing) = site.skipped().into_iter().find(|skipped| skipped.what == what) {
            return Ok(Err(missing));
        }
        let mut mount_points = Vec::new();
        for _ in 0..N {
            mount_points.push(site.private_dir(format!("volume-{:08x}", fastrand::u32(..)))?);
        }
        let said = site.root().join(format!("{:08x}.said", fastrand::u32(..)));
        let holder = spawn_holder(site, &mount_points, &sizes_bytes, &said)?;
        let answer = wait_for_mount(&holder, &said).await;
        drop(std::fs::remove_file(&said));
        let holder = Arc::new(Holder(holder));
        Ok(answer.map_err(|why| Skipped { what, why }).map(|()| {
            std::array::from_fn(|at| Self {
                holder: Arc::clone(&holder),
                mount_point: mount_points[at].clone(),
            })
        }))
    }

    /// The directory as the servers on it see it.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// The directory as we see it: through the holder's root.
    pub fn seen_from_here(&self) -> PathBuf {
        let inside = self.mount_point.strip_prefix("/").unwrap_or(&self.mount_point);
        PathBuf::from(format!("/proc/{}/root", self.holder.0.pid())).join(inside)
    }

    /// Takes all the space that is left; returns the bytes taken. Blocks for a moment.
    ///
    /// # Errors
    /// When writing fails for another reason than a full disk.
    pub fn fill(&self) -> Result<u64> {
        let path = self.seen_from_here().join(FILLER);
        let mut file = File::options().create(true).append(true).open(&path)?;
        let mut taken = 0;
        for piece_bytes in [1 << 26, 1 << 20, 1 << 12] {
            taken = reserve_until_full(&file, taken, piece_bytes)?;
        }
        file.seek(SeekFrom::End(0))?;
        Ok(taken + write_until_full(&mut file, 1 << 12)?)
    }

    /// Gives the space back. Does nothing when none was taken.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn free(&self) -> Result<()> {
        match std::fs::remove_file(self.seen_from_here().join(FILLER)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// A command inside the holder's namespace, under the account.
    ///
    /// # Errors
    /// When a program of util-linux is gone.
    pub fn command(&self, site: &Site, program: &Path) -> Result<Command> {
        let (nsenter, setpriv) = (tool(&site.tools().nsenter)?, tool(&site.tools().setpriv)?);
        let account = site.account();
        let mut command = still_root(account).command(nsenter);
        let namespace = |kind| format!("/proc/{}/ns/{kind}", self.holder.0.pid());
        command.arg(format!("--mount={}", namespace("mnt")));
        if !account.switch {
            command.arg(format!("--user={}", namespace("user"))).arg("--preserve-credentials");
        }
        // The kernel forgets the parent's death signal with every change of rights: so last.
        command
            .arg(format!("--wd={}", site.root().display()))
            .arg("--")
            .arg(setpriv)
            .args(["--pdeathsig", "QUIT"]);
        if account.switch {
            command.args(["--clear-groups", "--reuid", &account.uid.to_string()]);
            command.args(["--regid", &account.gid.to_string()]);
        }
        command.arg(program);
        Ok(command)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.stop(&[(Signal::KILL, MOUNT_LIMIT)]);
    }
}

/// The account's clean environment without its change of user: only root can enter a namespace.
fn still_root(account: &Account) -> Account {
    Account { switch: false, ..account.clone() }
}

fn tool(found: &Option<PathBuf>) -> Result<&Path> {
    found.as_deref().context("a program of util-linux is gone")
}

fn spawn_holder(site: &Site, at: &[PathBuf], bytes: &[u64], said: &Path) -> Result<Child> {
    let account = site.account();
    let mut command = still_root(account).command(tool(&site.tools().unshare)?);
    command.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    command.arg("--mount");
    if !account.switch {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.arg("--").arg(tool(&site.tools().setpriv)?).args(["--pdeathsig", "KILL"]);
    command.args(["/bin/sh", "-c", HOLDER, "fault-volume"]);
    command.args([account.uid.to_string(), account.gid.to_string()]);
    for (at, bytes) in at.iter().zip(bytes) {
        command.arg(bytes.to_string()).arg(at);
    }
    let output = File::create(said)?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    command.current_dir(site.root());
    die_with_parent(&mut command, Signal::KILL);
    Ok(Child::spawn(command)?)
}

/// Waits for the word; an end without it is a refusal.
async fn wait_for_mount(holder: &Child, said: &Path) -> Result<(), String> {
    let started = Instant::now();
    loop {
        // In this order: a holder that ends between the two lines is seen the next time.
        let running = holder.running();
        let mut words = String::new();
        let _ = File::open(said).and_then(|mut file| file.read_to_string(&mut words));
        if words.contains("mounted\n") {
            return Ok(());
        }
        if !running || started.elapsed() > MOUNT_LIMIT {
            holder.signal(Signal::KILL);
            return Err(format!("no tmpfs for us: {}", words.trim()));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Takes pages without writing them, from `taken` bytes on; a file of gigabytes takes a moment.
fn reserve_until_full(file: &File, mut taken: u64, piece_bytes: u64) -> Result<u64> {
    loop {
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), taken, piece_bytes) {
            Ok(()) => taken += piece_bytes,
            Err(rustix::io::Errno::NOSPC) => return Ok(taken),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot fill the volume"),
        }
    }
}

fn write_until_full(file: &mut File, piece_bytes: usize) -> Result<u64> {
    let piece = vec![0_u8; piece_bytes];
    let mut written = 0;
    loop {
        match file.write(&piece) {
            Ok(0) => bail!("the filler takes nothing"),
            Ok(bytes) => written += bytes as u64,
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot fill the volume"),
        }
    }
}
