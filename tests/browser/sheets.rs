//! The pages that are looked at, and a server for each kind of them.

use tuskline::pages::Access;

use crate::shop::{Shop, TOKEN, people};
use crate::support::Db;
use crate::support::pages::{Pages, encoded};
use crate::tab::Tab;

/// A page: its name, its address, and the status of its answer.
#[derive(Debug, Clone)]
pub struct Sheet {
    pub name: &'static str,
    pub address: String,
    pub status: u64,
}

/// The servers of all pages.
pub struct Sheets {
    pub shop: Shop,
    pub pages: Pages,
    /// An installation without a lambda.
    empty: Pages,
    /// One whose database is away.
    away: Pages,
}

impl Sheets {
    pub async fn new() -> Self {
        Self::of(Db::of_cell_0().await).await
    }

    /// The same with the shop in this database.
    pub async fn of(db: Db) -> Self {
        let shop = Shop::in_trouble(db).await;
        let pages = shop.pages().await;
        let nothing = Db::of_cell_0().await;
        nothing.run("update tuskline.installation set name = 'new'").await;
        let empty = Pages::of(&nothing, Access::default(), "").await;
        let away = Pages::away(&shop.db, people(), (TOKEN, shop.dead)).await;
        Self { shop, pages, empty, away }
    }

    /// All pages.
    pub fn all(&self) -> Vec<Sheet> {
        let Shop { waits, dead, chain, gate, .. } = self.shop;
        let of = |pages: &Pages, name, path: &str| {
            let address = format!("http://{}/{path}", pages.address);
            Sheet { name, address, status: 200 }
        };
        let cause = encoded("lambda:parse_feed amount_minor");
        let ours = [
            ("overview", String::new()),
            ("lambdas", "lambdas".to_owned()),
            ("lambda", "lambdas/charge_card".to_owned()),
            ("tasks", format!("tasks?q={cause}")),
            ("task", format!("tasks/{waits}")),
            ("task-shown", format!("tasks/{waits}?show=contents")),
            ("task-dead", format!("tasks/{dead}")),
            ("chain", format!("chains/{chain}")),
            ("dead-letters", "dead-letters".to_owned()),
            ("waits", "waits".to_owned()),
            ("periodic", "periodic".to_owned()),
            ("periodic-one", "periodic/orders_of_the_day".to_owned()),
            ("executors", "executors".to_owned()),
            ("operations", "operations".to_owned()),
            ("time", "time".to_owned()),
            ("audit", "audit".to_owned()),
            ("act", "act/redrive?lambda=parse_feed".to_owned()),
            ("act-typed", "act/cancel_tasks?lambda=sync_crm".to_owned()),
            ("act-of-one", format!("act/ungate?gate={gate}")),
            ("act-refused", "act/set_limit?lambda=charge_card&at_a_time=96".to_owned()),
            ("act-arguments", "act/throttle?lambda=charge_card".to_owned()),
            ("signin", "signin".to_owned()),
        ];
        let mut all: Vec<Sheet> =
            ours.iter().map(|(name, path)| of(&self.pages, name, path)).collect();
        all.push(of(&self.empty, "empty", ""));
        all.push(Sheet { status: 503, ..of(&self.away, "away", "") });
        all.push(Sheet { status: 400, ..of(&self.pages, "not-understood", "tasks?q=status%3Ax") });
        all.push(Sheet { status: 404, ..of(&self.pages, "unknown", "tasks/99999999") });
        all
    }

    /// Signs Ada in by the page that asks for her token.
    pub async fn sign_in(&self, tab: &Tab) {
        tab.open(&format!("http://{}/signin?to=%2F", self.pages.address)).await;
        tab.fill("#token", TOKEN).await;
        tab.follow("Sign in").await;
    }

    /// Ends the servers.
    pub async fn end(self) {
        for pages in [self.pages, self.empty, self.away] {
            pages.end().await;
        }
    }
}
