#!/bin/bash
# An executor in bash, with curl and jq: one task at a time, one lane. `tuskline conform -- bash executor.sh`.
#
# It hears no cancel while a task runs: then its process is ended after the grace, and started again.
# shellcheck disable=SC2016

call() { # message body: prints the answer. The connection broke: the same message again, for a second.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        if answer=$(curl -sS --unix-socket "$TUSKLINE_SOCKET" -H 'content-type: application/json' \
            -w '\n%{http_code}' --data-binary @- "http://localhost/tuskline.v1.Controller/$1" <<<"$2"); then
            status=${answer##*$'\n'} answer=${answer%$'\n'*}
            [ "$status" -lt 400 ] && return 0
            echo "$answer" >&2
            case $status in 409) return 1 ;; 410) exit 1 ;; *) exit 2 ;; esac
        fi
        sleep 0.1
    done
    exit 1
}

# Runs a task, and leaves its result in $result, as JSON without task and fence.
run() {
    case $lambda in
    echo) result=$(jq -c '{status: "success", output: (.payload // "null")}' <<<"$handed") ;;
    outcome)
        result=$(jq -c '(.payload | fromjson).results as $all | $all[([.attempt, ($all | length)] | min) - 1]' <<<"$handed")
        ;;
    hold) hold ;;
    busy)
        echo "$fence" >>"$dir/$task.begun"
        while :; do :; done
        ;;
    crash)
        code=$(jq -r '.exit // empty' <<<"$p")
        [ -n "$code" ] && exit "$code"
        kill -"$(jq -r .signal <<<"$p")" $$
        sleep 60
        ;;
    memory)
        printf -v held '%*s' "$(($(jq .mib <<<"$p") * 1024 * 1024))" ''
        hold
        unset held
        ;;
    run)
        readarray -t command < <(jq -r '.command[]' <<<"$p")
        setsid "${command[@]}" >/dev/null 2>&1 </dev/null &
        result='{"status":"success"}'
        ;;
    save) save ;;
    esac
}

hold() {
    echo "$fence" >>"$dir/$task.begun"
    if [ "$(jq '.percent?' <<<"$p")" != null ]; then
        said=$((said + 1)) # a lane that only delivers
        call NextWork "$(jq -c --arg me "$me" --argjson no "$said" --argjson of "$attempt" \
            '{executor: $me, lane: 1, no: $no, wait_ms: 0, max: 0, progress: [$of + {percent, text}]}' <<<"$p")"
    fi
    until [ -e "$dir/$task.go" ]; do sleep 0.02; done
    result='{"status":"success"}'
}

save() {
    if [ "$(jq 'has("checkpoint")' <<<"$handed")" = true ]; then
        result=$(jq -c '{status: "success", output: .checkpoint}' <<<"$handed")
        return
    fi
    [ -n "$dir" ] && hold
    result='{"status":"returned"}'
    call Save "$(jq -c --arg me "$me" --argjson of "$attempt" '$of + {executor: $me, checkpoint}' <<<"$p")" &&
        result='{"status":"retriable_failure","message":"saved","after_ms":0}'
}

said=0
call Join '{"protocol":1,"sdk":"sh/conformance","pid":'$$',"lambdas":[
    {"name":"echo"},{"name":"outcome"},{"name":"hold"},{"name":"busy"},{"name":"crash"},
    {"name":"memory","memory_mib":128},{"name":"run"},{"name":"save"}]}' || exit 2
me=$(jq -r .executor <<<"$answer") no=0 results='[]'
while no=$((no + 1)); do
    call NextWork "$(jq -c --arg me "$me" --argjson no "$no" \
        '{executor: $me, no: $no, wait_ms: 25000, max: 1, results: .}' <<<"$results")"
    results='[]'
    # One line each. A payload that is no object is for echo only, which never reads it.
    readarray -t part < <(jq -rc '.draining, (.tasks[0]? // empty |
        (((.payload // "null") | fromjson? | objects) // {}) as $p |
        .lambda, .task, .fence, ($p.dir // ""), {task, fence}, $p, .)' <<<"$answer")
    if [ "${#part[@]}" -gt 1 ]; then
        lambda=${part[1]} task=${part[2]} fence=${part[3]} dir=${part[4]} attempt=${part[5]} p=${part[6]} handed=${part[7]}
        run
        results=$(jq -c --argjson of "$attempt" '[$of + .]' <<<"$result")
    elif [ "${part[0]}" = true ]; then
        exit 0
    fi
done
