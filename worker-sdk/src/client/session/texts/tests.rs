use chrono::TimeZone;

use super::*;

fn check(parameters: &Parameters<'_>, expected: &[Option<&str>]) {
    let texts = values(parameters).unwrap();
    assert_eq!(texts.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
}

#[test]
fn each_parameter_is_cast_from_text() {
    let sql = "select f($1, $2, $2::float8[])";
    assert_eq!(
        statement(sql, &[(&1_i64, Type::INT8), (&vec![1.5], Type::FLOAT8_ARRAY)]),
        "with answer as (select f($1::text::int8, $2::text::_float8, $2::text::_float8::float8[])) \
         select pg_catalog.record_send(answer) as answer from answer"
    );
}

#[test]
fn a_parameter_of_two_digits_has_its_own_type() {
    let mut parameters: Vec<(&(dyn tokio_postgres::types::ToSql + Sync), Type)> =
        vec![(&"", Type::TEXT); 11];
    parameters.push((&true, Type::BOOL));
    let cast = statement("select f($12, $1)", &parameters);
    assert!(cast.contains("f($12::text::bool, $1::text::text)"), "{cast}");
}

#[test]
fn a_null_has_no_text() {
    check(&[(&None::<&str>, Type::TEXT), (&None::<Vec<i64>>, Type::INT8_ARRAY)], &[None, None]);
}

#[test]
fn numbers_keep_their_value() {
    check(
        &[
            (&i64::MIN, Type::INT8),
            (&f64::MIN_POSITIVE, Type::FLOAT8),
            (&f64::INFINITY, Type::FLOAT8),
        ],
        &[Some("-9223372036854775808"), Some(&f64::MIN_POSITIVE.to_string()), Some("inf")],
    );
}

#[test]
fn elements_of_an_array_are_quoted() {
    let texts = vec![Some("a,b"), None, Some(r#"c:\ "d" {}"#), Some("NULL"), Some("")];
    check(
        &[(&texts, Type::TEXT_ARRAY), (&Vec::<i64>::new(), Type::INT8_ARRAY)],
        &[Some(r#"{"a,b",NULL,"c:\\ \"d\" {}","NULL",""}"#), Some("{}")],
    );
}

#[test]
fn a_year_is_written_as_postgresql_reads_it() {
    let at = |year| Utc.with_ymd_and_hms(year, 3, 15, 1, 2, 3).unwrap();
    check(
        &[
            (&at(2026), Type::TIMESTAMPTZ),
            (&at(12_000), Type::TIMESTAMPTZ),
            (&at(-43), Type::TIMESTAMPTZ),
        ],
        &[
            Some("2026-03-15 01:02:03.000000+00"),
            Some("12000-03-15 01:02:03.000000+00"),
            Some("0044-03-15 01:02:03.000000+00 BC"),
        ],
    );
}

#[test]
fn a_record_is_read_by_its_types_and_lengths() {
    let record = [&2_i32.to_be_bytes()[..], &[0, 0, 0, 20, 0, 0, 0, 8], &7_i64.to_be_bytes()];
    let record = [&record.concat()[..], &[0, 0, 0, 25, 255, 255, 255, 255]].concat();
    let read = row(&record).unwrap();
    assert_eq!((read.get::<i64>(0), read.get::<Option<&str>>(1)), (7, None));
}

#[test]
fn bytes_that_are_no_record_are_noticed() {
    let record = [0, 0, 0, 1, 0, 0, 0, 25, 0, 0, 0, 2, b'a', b'b'];
    assert!(row(&record).is_some());
    for cut in 0..record.len() {
        assert!(row(&record[..cut]).is_none(), "{cut}");
    }
    assert!(row(&[&record[..], b"c"].concat()).is_none());
}
