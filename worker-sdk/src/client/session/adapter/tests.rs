use super::*;
use crate::client::Client;
use crate::client::new_task::NewTask;
use crate::task::TaskId;

/// Gives one answer to every statement, and keeps the last statement.
struct Fake<F> {
    answer: F,
    sent: (String, Vec<Option<AdapterValue>>),
}

impl<F: FnMut() -> Result<Vec<Vec<u8>>, AdapterError> + Send> Adapter for Fake<F> {
    async fn query(
        &mut self,
        sql: &str,
        values: Vec<Option<AdapterValue>>,
    ) -> Result<Vec<Vec<u8>>, AdapterError> {
        self.sent = (sql.to_owned(), values);
        (self.answer)()
    }
}

fn fake<F: FnMut() -> Result<Vec<Vec<u8>>, AdapterError> + Send>(answer: F) -> Fake<F> {
    Fake { answer, sent: Default::default() }
}

/// The errors of a change and of a read.
async fn errors(answer: impl FnMut() -> Result<Vec<Vec<u8>>, AdapterError> + Send) -> [Error; 2] {
    let mut fake = fake(answer);
    let tasks = Client::within(&mut fake);
    let change = tasks.schedule(NewTask::new("work", &1)).await.unwrap_err();
    [change, tasks.status(TaskId(1)).await.unwrap_err()]
}

#[tokio::test]
async fn values_are_texts_and_the_answer_is_a_record() {
    let record = [&1_i32.to_be_bytes()[..], &[0, 0, 0, 20, 0, 0, 0, 8], &7_i64.to_be_bytes()];
    let mut fake = fake(|| Ok(vec![record.concat()]));
    let id = Client::within(&mut fake).schedule(NewTask::new("work", &"a\"b")).await.unwrap();
    assert_eq!(id, TaskId(7));
    let (sql, values) = fake.sent;
    assert!(sql.contains("tuskline.schedule($1::text::text, $2::text::json, "), "{sql}");
    assert_eq!(format!("{:?}", values[1]), "Some(text of 6 bytes)");
    let values: Vec<_> = values.iter().map(|value| Some(value.as_ref()?.as_str())).collect();
    let expected = [Some("work"), Some(r#""a\"b""#), Some("normal"), None, None, None];
    assert_eq!(values, expected);
}

#[tokio::test]
async fn an_error_of_the_server_answers_as_for_a_known_library() {
    for error in errors(|| Err(AdapterError::refused(Some("40001"), "again", Some("soon")))).await {
        assert!(error.is_retryable());
        assert_eq!((error.sqlstate(), error.hint()), (Some("40001"), Some("soon")));
    }
}

#[tokio::test]
async fn a_hidden_sqlstate_is_read_from_a_refusal_of_tuskline_only() {
    let text = "TK001 unknown_lambda: no lambda work";
    for error in errors(|| Err(AdapterError::refused(None, text, None))).await {
        assert_eq!((error.code(), error.sqlstate()), (Some(Code::UnknownLambda), Some("TK001")));
    }
    for text in ["deadlock detected", "TK999 no code", "40001 no code", "TK001"] {
        for error in errors(|| Err(AdapterError::refused(None, text, None))).await {
            assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Invalid, None), "{text}");
        }
    }
}

#[tokio::test]
async fn without_an_answer_a_change_is_unknown_and_a_read_unavailable() {
    let broken = || Err(AdapterError::broken("closed"));
    let no_record = || Ok(vec![b"no record".to_vec()]);
    for errors in [errors(broken).await, errors(no_record).await] {
        assert_eq!(errors.map(|error| error.kind()), [ErrorKind::Unknown, ErrorKind::Unavailable]);
    }
    let [error, _] = errors(broken).await;
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "closed");
}
