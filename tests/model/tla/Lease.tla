------------------------------- MODULE Lease -------------------------------
(* One task, a few worker processes, a network that delays and loses, a     *)
(* store consumer that ends silent executors: is there ever more than one   *)
(* live body, does a stale result ever count, does the task ever end?       *)
(*                                                                          *)
(* Time is counted in ticks, always as "how long since", so that the states *)
(* stay finite. Beats, answers and results travel as long as they like,     *)
(* unless Timely. A worker is one registration of a process: at T its       *)
(* bodies are stopped, and then the process ends, or goes on as another     *)
(* worker. When the store consumer has ended a worker, its slot may be born *)
(* again under a new number.                                                *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Workers,      \* worker processes (tuskline.executor rows)
  T,            \* a worker stops its bodies T after it sent its last acknowledged beat
  M,            \* within M the watchdog's thread gets to run and the bodies stop, or the process ends
  L,            \* silence after which the store consumer ends an executor
  MaxAttempts,  \* lambda.max_attempts
  MaxCrashes,   \* lambda.max_crashes
  Faults,       \* how many crashes, losses, repeats, freezes and clock steps there are
  Freezes,      \* whether a process may be stopped for longer than M (SIGSTOP)
  Restarts,     \* whether a process that ended is started again
  HB, D,        \* when Timely: beats start at least every HB and return within D
  Timely,       \* whether an undisturbed worker's beats come in time (liveness needs it)
  Flaw          \* "none", or the rule that is broken

VARIABLES
  task,      \* tuskline.task with its lease: status, fence, attempt, crashes, holder
  ended,     \* executor.ended_at is not null
  fresh,     \* executor.beat_at has changed since the store consumer last looked
  quiet,     \* for how long the store consumer has seen no new beat, on its own clock
  process,   \* running, stopping (its bodies), frozen or dead (this registration is over)
  sent,      \* watchdog.rs: how long ago the last acknowledged beat was sent
  beat,      \* heartbeat.rs: the beat under way, its age and what the database said
  answer,    \* the fence of a claim's answer under way to the worker (0: none)
  body,      \* the fence of the body that runs in the worker (0: none)
  results,   \* results under way to the database
  faults,    \* faults left
  stale,     \* remembers: a result was applied to an attempt that was not its own
  ends       \* remembers: how often the task became terminal

row == <<task, stale, ends>>
seen == <<ended, fresh, quiet>>
worker == <<process, sent, beat, answer, body>>
vars == <<row, seen, worker, results, faults>>

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Terminal == {"success", "dead"}
NoBeat == [stage |-> "none", age |-> 0, alive |-> TRUE]
Limit == T + M

Init ==
  /\ task = [status |-> "enqueued", fence |-> 0, attempt |-> 0, crashes |-> 0,
             holder |-> "nobody"]
  /\ ended = [w \in Workers |-> FALSE]
  /\ fresh = [w \in Workers |-> FALSE]
  /\ quiet = [w \in Workers |-> 0]
  /\ process = [w \in Workers |-> "running"]
  /\ sent = [w \in Workers |-> 0]
  /\ beat = [w \in Workers |-> NoBeat]
  /\ answer = [w \in Workers |-> 0]
  /\ body = [w \in Workers |-> 0]
  /\ results = {}
  /\ faults = Faults
  /\ stale = FALSE
  /\ ends = 0

Costs == faults > 0 /\ faults' = faults - 1

(* What is left of a process that ends: nothing but the results it had sent. *)
Dies(w) ==
  /\ process' = [process EXCEPT ![w] = "dead"]
  /\ sent' = [sent EXCEPT ![w] = 0]
  /\ beat' = [beat EXCEPT ![w] = NoBeat]
  /\ answer' = [answer EXCEPT ![w] = 0]
  /\ body' = [body EXCEPT ![w] = 0]

Running(w) == process[w] = "running"
Stopping(w) == process[w] = "stopping"

(* bodies.rs: nothing begins any more. Bodies run on until they are stopped. *)
Stops(w) ==
  /\ process' = [process EXCEPT ![w] = "stopping"]
  /\ sent' = [sent EXCEPT ![w] = Max(@, T)]
  /\ beat' = [beat EXCEPT ![w] = NoBeat]
  /\ answer' = [answer EXCEPT ![w] = 0]
  /\ UNCHANGED body
HeldBy(w) == task.status = "held" /\ task.holder = w

--------------------------------------------------------------------------
(* Time *)

InTime(w) ==
  Running(w) => IF beat[w].stage = "none" THEN sent[w] < HB ELSE beat[w].age < D

(* The store consumer looks at executor.beat_at, and counts on its own      *)
(* clock. It sees a beat at the earliest when it was applied; looking later *)
(* would only make it wait longer.                                          *)
Look(blind) ==
  /\ quiet' = [w \in Workers |->
                 IF ended[w] THEN 0
                 ELSE IF fresh[w] /\ ~blind THEN 1
                 ELSE Min(quiet[w] + 1, L)]
  /\ fresh' = IF blind THEN fresh ELSE [w \in Workers |-> FALSE]

Tick ==
  /\ \A w \in Workers : Running(w) \/ Stopping(w) => sent[w] + 1 < Limit
  /\ Timely => \A w \in Workers : InTime(w)
  /\ sent' = [w \in Workers |-> IF process[w] = "dead" THEN 0 ELSE Min(sent[w] + 1, Limit)]
  /\ beat' = [w \in Workers |-> IF beat[w].stage = "none" THEN NoBeat
                                ELSE [beat[w] EXCEPT !.age = Min(@ + 1, Limit - 1)]]
  /\ \E blind \in (IF Flaw = "ended without a second look" THEN BOOLEAN ELSE {FALSE}) : Look(blind)
  /\ UNCHANGED <<row, ended, process, answer, body, results, faults>>

(* Somebody steps the database's wall clock. It decides what is due, and    *)
(* nothing here: unless executors are ended by executor.expires_at.         *)
StepClock ==
  /\ Costs
  /\ quiet' = IF Flaw = "ended by the wall clock" THEN [w \in Workers |-> L] ELSE quiet
  /\ UNCHANGED <<row, ended, fresh, worker, results>>

--------------------------------------------------------------------------
(* heartbeat.rs and tuskline.heartbeat *)

SendBeat(w) ==
  /\ Running(w) /\ beat[w].stage = "none"
  /\ beat' = [beat EXCEPT ![w] = [NoBeat EXCEPT !.stage = "going"]]
  /\ UNCHANGED <<row, seen, process, sent, answer, body, results, faults>>

(* An executor that has not been ended is alive, however late its beat is. *)
ApplyBeat(w) ==
  /\ beat[w].stage = "going"
  /\ beat' = [beat EXCEPT ![w].stage = "coming", ![w].alive = ~ended[w]]
  /\ fresh' = [fresh EXCEPT ![w] = ~ended[w]]
  /\ UNCHANGED <<row, ended, quiet, process, sent, answer, body, results, faults>>

AcknowledgeBeat(w) ==
  /\ Running(w) /\ beat[w].stage = "coming"
  /\ IF beat[w].alive
     THEN /\ sent' = [sent EXCEPT ![w] =
                        IF Flaw = "counted from the answer" THEN 0 ELSE Min(@, beat[w].age)]
          /\ beat' = [beat EXCEPT ![w] = NoBeat]
          /\ UNCHANGED <<process, answer, body>>
     ELSE Stops(w)
  /\ UNCHANGED <<row, seen, results, faults>>

LoseBeat(w) ==
  /\ beat[w].stage # "none" /\ Costs
  /\ beat' = [beat EXCEPT ![w] = NoBeat]
  /\ UNCHANGED <<row, seen, process, sent, answer, body, results>>

(* watchdog.rs *)
Watchdog(w) ==
  /\ Running(w) /\ sent[w] >= T /\ Stops(w)
  /\ UNCHANGED <<row, seen, results, faults>>

(* An async body is dropped, a blocking one obeys; neither is obliged to. *)
BodyStops(w) ==
  /\ Stopping(w) /\ body[w] # 0
  /\ body' = [body EXCEPT ![w] = 0]
  /\ UNCHANGED <<row, seen, process, sent, beat, answer, results, faults>>

(* No body runs: the process goes on, as another worker. *)
Leave(w) ==
  /\ Stopping(w) /\ (body[w] = 0 \/ Flaw = "registered anew beside a body")
  /\ process' = [process EXCEPT ![w] = "dead"]
  /\ sent' = [sent EXCEPT ![w] = 0]
  /\ UNCHANGED <<row, seen, beat, answer, body, results, faults>>

(* A body runs on, or the process was told to end. *)
EndProcess(w) ==
  /\ Stopping(w) /\ Dies(w)
  /\ UNCHANGED <<row, seen, results, faults>>

--------------------------------------------------------------------------
(* What befalls a process *)

Crash(w) ==
  /\ process[w] # "dead" /\ Costs /\ Dies(w)
  /\ UNCHANGED <<row, seen, results>>

Freeze(w) ==
  /\ Freezes /\ (Running(w) \/ Stopping(w)) /\ Costs
  /\ process' = [process EXCEPT ![w] = "frozen"]
  /\ UNCHANGED <<row, seen, sent, beat, answer, body, results>>

Thaw(w) ==
  /\ process[w] = "frozen"
  /\ process' = [process EXCEPT ![w] = "running"]
  /\ UNCHANGED <<row, seen, sent, beat, answer, body, results, faults>>

(* tuskline.register_executor: a new incarnation in the slot of an old one. *)
Restart(w) ==
  /\ Restarts /\ process[w] = "dead" /\ ended[w] /\ ~HeldBy(w)
  /\ process' = [process EXCEPT ![w] = "running"]
  /\ ended' = [ended EXCEPT ![w] = FALSE]
  /\ quiet' = [quiet EXCEPT ![w] = 0]
  /\ fresh' = [fresh EXCEPT ![w] = FALSE]
  /\ UNCHANGED <<row, sent, beat, answer, body, results, faults>>

--------------------------------------------------------------------------
(* The store consumer: tuskline.rescue *)

(* The guard of the UPDATE: beat_at is still what was seen. *)
Unchanged(w) == ~fresh[w] \/ Flaw \in {"ended without a second look", "ended by the wall clock"}

End(w) ==
  /\ ~ended[w] /\ quiet[w] >= L /\ Unchanged(w)
  /\ ended' = [ended EXCEPT ![w] = TRUE]
  /\ fresh' = [fresh EXCEPT ![w] = FALSE]
  /\ quiet' = [quiet EXCEPT ![w] = 0]
  /\ UNCHANGED <<row, worker, results, faults>>

(* tuskline_core.return_crashed *)
Rescue(w) ==
  /\ ended[w] /\ HeldBy(w)
  /\ LET dead == task.crashes + 1 >= MaxCrashes IN
     /\ task' = [task EXCEPT !.status = IF dead THEN "dead" ELSE "enqueued",
                             !.attempt = @ - 1, !.crashes = @ + 1]
     /\ ends' = IF dead THEN ends + 1 ELSE ends
  /\ UNCHANGED <<stale, seen, worker, results, faults>>

(* tuskline.enqueue_due, for a retry *)
EnqueueDue ==
  /\ task.status = "waiting"
  /\ task' = [task EXCEPT !.status = "enqueued"]
  /\ UNCHANGED <<stale, ends, seen, worker, results, faults>>

--------------------------------------------------------------------------
(* The controller and the executor *)

(* tuskline.claim; a request that travels long is a claim by a worker that  *)
(* has stopped since, which is a crash or a freeze just after it.           *)
Claim(w) ==
  /\ Running(w) /\ ~ended[w] /\ body[w] = 0 /\ answer[w] = 0
  /\ task.status = "enqueued"
  /\ task' = [task EXCEPT !.status = "held", !.fence = @ + 1, !.attempt = @ + 1, !.holder = w]
  /\ answer' = [answer EXCEPT ![w] = task.fence + 1]
  /\ UNCHANGED <<stale, ends, seen, process, sent, beat, body, results, faults>>

(* The answer arrives; nothing begins past the watchdog's limit. *)
Begin(w) ==
  /\ Running(w) /\ answer[w] # 0 /\ body[w] = 0 /\ sent[w] < T
  /\ body' = [body EXCEPT ![w] = answer[w]]
  /\ answer' = [answer EXCEPT ![w] = 0]
  /\ UNCHANGED <<row, seen, process, sent, beat, results, faults>>

LoseAnswer(w) ==
  /\ answer[w] # 0 /\ Costs
  /\ answer' = [answer EXCEPT ![w] = 0]
  /\ UNCHANGED <<row, seen, process, sent, beat, body, results>>

(* tuskline.release_lease: a beat names a lease that the worker does not    *)
(* know, so it gives it back. Should the answer still come, it is dropped.  *)
GiveBack(w) ==
  /\ Running(w) /\ ~ended[w] /\ HeldBy(w) /\ body[w] # task.fence
  /\ ~\E r \in results : r.fence = task.fence
  /\ IF answer[w] = 0 THEN UNCHANGED faults ELSE Costs
  /\ task' = [task EXCEPT !.status = "enqueued", !.attempt = @ - 1]
  /\ answer' = IF Flaw = "given back, yet begun" THEN answer ELSE [answer EXCEPT ![w] = 0]
  /\ UNCHANGED <<stale, ends, seen, process, sent, beat, body, results>>

Report(w, outcome) ==
  /\ (Running(w) \/ Stopping(w)) /\ body[w] # 0
  /\ results' = results \cup {[fence |-> body[w], outcome |-> outcome]}
  /\ body' = [body EXCEPT ![w] = 0]
  /\ UNCHANGED <<row, seen, process, sent, beat, answer, faults>>

(* Nothing obliges a lambda to return ... *)
Finish(w) == \E outcome \in {"success", "retriable"} : Report(w, outcome)

(* ... but its deadline: lambda.attempt_timeout. *)
Deadline(w) == Flaw # "no deadline" /\ Report(w, "retriable")

(* tuskline.set_results. A result whose acknowledgement is lost is sent     *)
(* again; one that is lost itself is only late.                             *)
Guard(r) ==
  /\ r.fence = task.fence \/ Flaw = "no fence"
  /\ task.status = "held" \/ Flaw = "no status in the guard"

SetResult(r) ==
  /\ \/ results' = results \ {r} /\ UNCHANGED faults
     \/ results' = results /\ Costs
  /\ IF Guard(r)
     THEN LET status == IF r.outcome = "success" THEN "success"
                        ELSE IF task.attempt >= MaxAttempts THEN "dead" ELSE "waiting"
          IN /\ task' = [task EXCEPT !.status = status, !.crashes = 0]
             /\ ends' = IF status \in Terminal THEN ends + 1 ELSE ends
             /\ stale' = (stale \/ r.fence # task.fence)
     ELSE UNCHANGED row
  /\ UNCHANGED <<seen, worker>>

--------------------------------------------------------------------------
Act(w) ==
  \/ SendBeat(w) \/ ApplyBeat(w) \/ AcknowledgeBeat(w) \/ LoseBeat(w)
  \/ Watchdog(w) \/ BodyStops(w) \/ Leave(w) \/ EndProcess(w)
  \/ Crash(w) \/ Freeze(w) \/ Thaw(w) \/ Restart(w)
  \/ End(w) \/ Rescue(w)
  \/ Claim(w) \/ Begin(w) \/ LoseAnswer(w) \/ GiveBack(w) \/ Finish(w) \/ Deadline(w)

(* The task has ended and nothing speaks of it any more. *)
Over == task.status \in Terminal /\ results = {}

Next ==
  /\ ~Over
  /\ \/ Tick \/ StepClock \/ EnqueueDue
     \/ \E w \in Workers : Act(w)
     \/ \E r \in results : SetResult(r)

Spec == Init /\ [][Next]_vars

(* Whatever can go on does go on; nobody is obliged to fail, or to finish. *)
Fair(w) ==
  /\ WF_vars(SendBeat(w)) /\ WF_vars(ApplyBeat(w)) /\ WF_vars(AcknowledgeBeat(w))
  /\ WF_vars(Watchdog(w)) /\ WF_vars(EndProcess(w)) /\ WF_vars(Thaw(w)) /\ WF_vars(Restart(w))
  /\ WF_vars(End(w)) /\ WF_vars(Rescue(w))
  /\ WF_vars(Claim(w)) /\ WF_vars(Begin(w)) /\ WF_vars(answer[w] = 0 /\ GiveBack(w))
  /\ WF_vars(Deadline(w))

Live ==
  /\ Spec /\ WF_vars(Tick) /\ WF_vars(EnqueueDue)
  /\ WF_vars(\E r \in results : SetResult(r))
  /\ \A w \in Workers : Fair(w)

--------------------------------------------------------------------------
(* Workers are alike; for the configurations without liveness. *)
Alike == Permutations(Workers)

OneLiveBody == Cardinality({w \in Workers : process[w] # "frozen" /\ body[w] # 0}) <= 1
NoStaleResult == ~stale
TerminalOnce == ends <= 1 /\ (ends = 1 <=> task.status \in Terminal)
Bounded == task.attempt <= MaxAttempts /\ task.crashes <= MaxCrashes

EventuallyTerminal == <>(task.status \in Terminal)
=============================================================================
