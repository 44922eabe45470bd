//! The example of docs/rust-transactions.md.

#![allow(clippy::unwrap_used, reason = "tests")]

mod tuskline_diesel {
    pub use tuskline_recipe_diesel::Diesel;
}

mod page {
    include!("documents/order.rs");

    use tuskline_testing::Database;

    #[tokio::test]
    async fn an_order_is_a_purchase_and_a_task() {
        let db = Database::new().await.unwrap();
        db.define(&["ship"]).await.unwrap();
        db.run("create table purchase (article text primary key)").await.unwrap();
        let mut connection = AsyncPgConnection::establish(db.url()).await.unwrap();
        let id = order(&mut connection, "a lamp").await.unwrap();
        assert!(order(&mut connection, "a lamp").await.is_err());
        let task = db.scheduled("ship").await.unwrap().with("a lamp").once();
        assert_eq!(task.id, id);
    }
}

#[test]
fn the_page_shows_it() {
    let page = include_str!("../../../docs/rust-transactions.md");
    assert!(page.contains(include_str!("documents/order.rs")));
}
