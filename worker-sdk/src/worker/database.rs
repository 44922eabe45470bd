//! The settings and limits that all parts of a registered worker share to reach the database.

use crate::db::hsc::Attempt;
use crate::worker::control_connection::ControlConnection;
use crate::worker::controller::Controller;
use crate::worker::opener::Opener;
use crate::worker::work::Work;

#[derive(Debug)]
pub(crate) struct Database {
    pub opener: Opener,
    /// The number of this worker.
    pub executor: i64,
    pub control: ControlConnection,
}

impl Database {
    /// Gives work back. Work that the database did not answer for, or whose row is locked, stays
    /// abandoned, to be tried again.
    pub(crate) async fn give_back(&self, controller: &Controller, back: Vec<Work>) {
        let (crashed, back): (Vec<_>, Vec<_>) =
            back.into_iter().partition(|work| work.crash.is_some());
        self.report_crashes(controller, crashed).await;
        if back.is_empty() {
            return;
        }
        let sent = controller.give_back(back);
        let attempts: Vec<Attempt> = sent.items().iter().map(Work::id).collect();
        match self.control.release(&attempts, sent.last_leases()).await {
            Some(released) => controller.given_back(sent, |work| released.verdict(work.task)),
            None => controller.not_given_back(sent),
        }
    }

    /// The same for attempts whose processes have ended.
    async fn report_crashes(&self, controller: &Controller, crashed: Vec<Work>) {
        if crashed.is_empty() {
            return;
        }
        let sent = controller.give_back(crashed);
        match self.control.report_crashes(sent.items(), sent.last_leases()).await {
            Some(released) => controller.given_back(sent, |work| released.verdict(work.task)),
            None => controller.not_given_back(sent),
        }
    }
}
