//! The files of `packaging/` are true: commands, options, variables, ports, paths and versions exist,
//! and say the same in each file. `./x leg dist` builds and runs them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tuskline::health;
use tuskline::recovery::RoleHealth;

use crate::support::cli::tuskline;
use crate::support::{Db, within};

const CONTAINER: &str = include_str!("../../../packaging/Containerfile");
const SERVE_UNIT: &str = include_str!("../../../packaging/systemd/tuskline-serve.service");
const WORKER_UNIT: &str = include_str!("../../../packaging/systemd/tuskline-worker@.service");
const MIGRATE: &str = include_str!("../../../packaging/kubernetes/migrate.yaml");
const SERVE: &str = include_str!("../../../packaging/kubernetes/serve.yaml");
const WORKER: &str = include_str!("../../../packaging/kubernetes/worker.yaml");

const ALL: [&str; 6] = [CONTAINER, SERVE_UNIT, WORKER_UNIT, MIGRATE, SERVE, WORKER];

/// The rest of each line that begins with a key, whatever stands before it.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.filter_map(|line| Some(line.split_once(key)?.1.trim())).collect()
}

/// The words of a list `["a", "b"]` or `[a, b]`.
fn words(list: &str) -> Vec<&str> {
    let inner = list.trim_start_matches('[').trim_end_matches(']');
    inner.split(',').map(|word| word.trim().trim_matches('"')).collect()
}

/// The names that begin with a prefix and go on in capitals.
fn variables(text: &str, prefix: &str) -> Vec<String> {
    let ends = |c: char| !c.is_ascii_uppercase() && c != '_';
    let names =
        text.split(ends).filter(|name| name.starts_with(prefix) && name.len() > prefix.len());
    names.map(str::to_owned).collect()
}

#[test]
fn every_file_is_checked() {
    let mut files = 0;
    for directory in ["systemd", "kubernetes"] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(directory);
        files += std::fs::read_dir(directory).unwrap().count();
    }
    assert_eq!(files, ALL.len() - 1, "the list ALL has each unit and manifest");
}

#[test]
fn every_command_exists_with_its_options() {
    let mut commands: Vec<Vec<&str>> = vec![];
    for line in values(SERVE_UNIT, "ExecStart=/usr/local/bin/tuskline ") {
        commands.push(line.split(' ').collect());
    }
    for line in values(CONTAINER, "CMD ") {
        commands.push(words(line).into_iter().filter(|word| !word.starts_with('/')).collect());
    }
    for manifest in [MIGRATE, SERVE] {
        commands.extend(values(manifest, "args: ").into_iter().map(words));
    }
    assert_eq!(commands.len(), 5, "{commands:?}");
    for command in commands {
        // A word that is not known comes before the help that is asked for.
        let ran = tuskline(&[&command[..], &["--help"]].concat()).run();
        assert_eq!(ran.code, 0, "{command:?}: {}", ran.err);
    }
}

#[test]
fn every_variable_is_read() {
    let helps = ["serve", "health", "migrate"].map(|name| tuskline(&[name, "--help"]).run().fine());
    let address = include_str!("../../../worker-sdk/src/db/address.rs");
    for text in ALL {
        for name in variables(text, "TUSKLINE_") {
            assert!(helps.iter().any(|help| help.contains(&name)), "no command takes {name}");
        }
        for name in variables(text, "PG") {
            assert!(address.contains(&format!("\"{name}\"")), "no address takes {name}");
        }
    }
    assert!(!variables(SERVE_UNIT, "PG").is_empty());
    assert!(!variables(CONTAINER, "TUSKLINE_").is_empty());
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = env!("CARGO_PKG_VERSION");
    let mut images = vec![];
    for text in [CONTAINER, MIGRATE, SERVE] {
        let named =
            text.split("tuskline:").skip(1).map(|rest| rest.split_whitespace().next().unwrap());
        images.extend(named.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())));
    }
    assert_eq!(images.len(), 4, "{images:?}");
    assert!(images.iter().all(|image| *image == version), "{images:?} is not {version}");
}

#[test]
fn a_port_and_a_user_are_the_same_in_each_file() {
    let [port] = values(CONTAINER, "EXPOSE ")[..] else { panic!("one port") };
    assert_eq!(values(CONTAINER, "TUSKLINE_LISTEN="), [format!("0.0.0.0:{port}")]);
    assert_eq!(values(SERVE, "value: 0.0.0.0:"), [port]);
    assert_eq!(values(SERVE, "containerPort: "), [format!("{port}}}")]);
    let probes = values(SERVE, "httpGet: {path: ");
    assert!(probes.iter().all(|probe| probe.ends_with(&format!("port: {port}}}"))), "{probes:?}");
    let [user] = values(CONTAINER, "USER ")[..] else { panic!("one user") };
    let id = user.split_once(':').unwrap().0;
    assert!(id.parse::<u32>().unwrap() > 0);
    for manifest in [MIGRATE, SERVE, WORKER] {
        assert_eq!(values(manifest, "runAsUser: "), [id]);
        assert_eq!(values(manifest, "runAsNonRoot: "), ["true"]);
        assert_eq!(values(manifest, "readOnlyRootFilesystem: "), ["true"]);
        assert_eq!(values(manifest, "capabilities: "), ["{drop: [ALL]}"]);
    }
}

/// The document of a kind in a manifest.
fn document<'a>(manifest: &'a str, kind: &str) -> &'a str {
    let mut documents = manifest.split("\n---\n");
    documents.find(|document| document.contains(&format!("\nkind: {kind}\n"))).unwrap()
}

#[test]
fn the_service_is_the_one_that_the_page_asks() {
    let metrics = include_str!("../../../docs/metrics.md");
    let [port] = values(CONTAINER, "EXPOSE ")[..] else { panic!("one port") };
    let service = document(SERVE, "Service");
    let name = values(service, "  name: ")[0];
    for kind in ["Deployment", "PodDisruptionBudget"] {
        assert_eq!(values(document(SERVE, kind), "  name: ")[0], name, "{kind}");
    }
    let asked = values(metrics, "url: http://");
    assert_eq!(asked, [format!("{name}:{port}/scale/send_email")]);
    assert_eq!(values(service, "port: "), [format!("{port}, targetPort: health}}")]);
    let labels = values(document(SERVE, "Deployment"), "matchLabels: ");
    assert_eq!(values(service, "selector: "), labels);
    assert_eq!(values(SERVE, "prometheus.io/port: "), [format!("\"{port}\"")]);
    assert_eq!(values(SERVE, "prometheus.io/path: "), ["/metrics"]);
}

#[test]
fn each_secret_is_made_by_a_step_of_the_page() {
    let page = include_str!("../../../docs/install.md");
    for manifest in [MIGRATE, SERVE, WORKER] {
        for secret in values(manifest, "secretKeyRef: {name: ") {
            let (name, key) = secret.split_once(", key: ").unwrap();
            let step = format!(
                "kubectl create secret generic {name} --from-literal={}=",
                key.trim_end_matches('}')
            );
            assert!(page.contains(&step), "{step}");
        }
    }
}

/// Where a relative link of a page leads to, from the root of the repository on.
fn target(page: &Path, link: &str) -> Option<String> {
    let path = link.split('#').next().filter(|path| !path.is_empty() && !path.contains("://"))?;
    let mut parts: Vec<&str> =
        page.parent()?.to_str()?.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The pages below a path of the repository.
fn pages(root: &Path, path: &Path, found: &mut Vec<PathBuf>) {
    if root.join(path).is_dir() {
        for entry in std::fs::read_dir(root.join(path)).unwrap() {
            pages(root, &path.join(entry.unwrap().file_name()), found);
        }
    } else if path.extension().is_some_and(|extension| extension == "md") {
        found.push(path.to_owned());
    }
}

#[test]
fn the_archive_has_each_file_that_its_pages_link_to() {
    let script = include_str!("../../../packaging/dist");
    let list = script.split_once("\npacked=\"").unwrap().1.split_once('"').unwrap().0;
    let packed: Vec<&str> = list.split_whitespace().collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![];
    packed.iter().for_each(|path| pages(root, Path::new(path), &mut found));
    let mut dead = vec![];
    for page in &found {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for target in links.filter_map(|link| target(page, link)) {
            if !packed.iter().any(|path| Path::new(&target).starts_with(path)) {
                dead.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(found.len() > 40, "{found:?}");
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn the_steps_of_the_page_run_in_the_directory_that_they_go_to() {
    let page = include_str!("../../../docs/install.md");
    let steps: Vec<&str> = page.lines().filter(|line| line.starts_with("cd tuskline-")).collect();
    let [unpacked] = steps[..] else { panic!("one step goes to the directory of the archive") };
    let directory = unpacked.split_whitespace().nth(1).unwrap();
    let archive = format!("tar -xzf {directory}.tar.gz\n");
    assert!(page.contains(&archive), "{archive}");
    assert!(page.contains("\ninstall tuskline /usr/local/bin/"));
    assert!(!page.contains("/dev/stdin"), "a step that waits without a word");
}

#[test]
fn a_unit_and_a_pod_wait_as_long_for_the_same_process() {
    for (unit, manifest) in [(SERVE_UNIT, SERVE), (WORKER_UNIT, WORKER)] {
        let grace = values(manifest, "terminationGracePeriodSeconds: ");
        assert_eq!(values(unit, "TimeoutStopSec="), grace);
        assert_eq!(grace.len(), 1);
    }
}

#[tokio::test]
async fn every_probe_names_a_path_that_answers() {
    let db = Db::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, end) = (listener.local_addr().unwrap(), CancellationToken::new());
    let (database, until) = (db.config.clone().into(), end.clone());
    let serving = tokio::spawn(health::serve(
        listener,
        database,
        RoleHealth::default(),
        axum::Router::new(),
        until,
    ));
    let mut paths: Vec<_> = values(SERVE, "httpGet: {path: ")
        .into_iter()
        .map(|probe| probe.split_once(',').unwrap().0)
        .collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/healthz", "/readyz"]);
    for path in paths {
        let answer = within(get(address, path)).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
    end.cancel();
    within(serving).await.unwrap();
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// `./x` with a major version that no wheel is pinned for, and a Python that notes that it was called.
#[test]
fn no_postgresql_is_fetched_that_is_not_pinned() {
    let dir = tempfile::tempdir().unwrap();
    let python = dir.path().join("python3");
    std::fs::write(&python, "#!/bin/sh\n: >\"$0.called\"\nexit 1\n").unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut x = Command::new("/bin/sh");
    x.args([concat!(env!("CARGO_MANIFEST_DIR"), "/x"), "setup"]);
    x.env("TUSKLINE_PG_MAJOR", "99").env("TUSKLINE_PG_BIN", "");
    x.env("PATH", format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap()));
    for source in ["", "wheel"] {
        let said = x.env("TUSKLINE_PG_SOURCE", source).output().unwrap();
        let complaint = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(77), "this machine cannot: {complaint}");
        assert_eq!(complaint, "no PostgreSQL 99 here, and no wheel of it is pinned in x\n");
        assert!(!dir.path().join("python3.called").exists());
    }
}
