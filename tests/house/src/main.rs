//! `./x house`: figures of the source, each beside its target.

use clap::Parser;
use tuskline_house::{Tree, database, figures};

#[derive(Debug, Parser)]
#[command(about = "Figures of the source, each beside its target")]
struct Cli {
    /// Everything as JSON, with the names behind each number.
    #[arg(long)]
    json: bool,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let catalogue = runtime.block_on(database::read())?;
    let figures = figures::all(&Tree::root(), &catalogue)?;
    match cli.json {
        true => println!("{}", serde_json::to_string_pretty(&figures)?),
        false => print!("{}", figures::table(&figures)),
    }
    Ok(())
}
