-------------------------------- MODULE Wake --------------------------------
(* Wake only the sleeping, and of those only one: a controller takes the    *)
(* exclusive session lock of the queue it found empty, looks once more, and *)
(* keeps watch; a transaction that inserts tries the shared lock, and       *)
(* notifies only if it fails. The others stand by: told, they ask for the   *)
(* lock. A watch whose executors are busy gives it up, and so does one that *)
(* is called too often, over all of its queues: it polls while the stream   *)
(* lasts. Queues share bells, so a stranger may hold the lock for a queue   *)
(* of its own: then one peeks whenever one asks for it. Does anybody who    *)
(* could work sleep past a committed row?                                   *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Controllers,   \* those of one queue (worker-sdk: controller, queue_watch.rs)
  Strangers,     \* those of them that serve another queue of its bell, which stays empty
  Inserters,     \* transactions that insert one row each (tuskline_core.route)
  Poll,          \* the safety poll, at most 1 s
  Losses,        \* how many notifications the network swallows
  Deaths,        \* how many controllers die
  Fills,         \* how often all executors of a worker are at work
  Flaw           \* "none", "a shared bell is trusted", "looks before it locks", "a busy watch stays", "standby is deaf"
                 \* or "a stream is not polled"

VARIABLES
  insert,   \* each transaction: begun, inserted (not committed), committed
  tells,    \* the transaction notifies when it commits (pg_notify in tuskline_core.wake)
  shares,   \* transactions that hold the shared lock
  owner,    \* the controller that holds the exclusive lock ("nobody": none)
  rows,     \* committed queue rows
  watch,    \* each controller (queue_watch/watch_state.rs): awake, falling, last, asleep, or dead
  heard,    \* a notification has arrived
  asks,     \* stands by, and will ask for the lock (standby.rs)
  busy,     \* all its executors are at work
  stream,   \* is called too often to keep watch (call_rate.rs)
  losses, deaths, fills

vars == <<insert, tells, shares, owner, rows, watch, heard, asks, busy, stream, losses, deaths, fills>>
counts == <<losses, deaths, fills>>

Init ==
  /\ insert = [i \in Inserters |-> "begun"]
  /\ tells = [i \in Inserters |-> FALSE]
  /\ shares = {}
  /\ owner = "nobody"
  /\ rows = 0
  /\ watch = [c \in Controllers |-> "awake"]
  /\ heard = [c \in Controllers |-> FALSE]
  /\ asks = [c \in Controllers |-> FALSE]
  /\ busy = [c \in Controllers |-> FALSE]
  /\ stream = [c \in Controllers |-> FALSE]
  /\ losses = Losses
  /\ deaths = Deaths
  /\ fills = Fills

(* tuskline_core.route, then tuskline_core.wake: the row first, the lock after it. *)
Insert(i) ==
  /\ insert[i] = "begun"
  /\ insert' = [insert EXCEPT ![i] = "inserted"]
  /\ UNCHANGED <<tells, shares, owner, rows, watch, heard, asks, busy, stream, counts>>

TryShared(i) ==
  /\ insert[i] = "inserted" /\ i \notin shares /\ ~tells[i]
  /\ IF owner = "nobody"
     THEN shares' = shares \cup {i} /\ UNCHANGED tells
     ELSE tells' = [tells EXCEPT ![i] = TRUE] /\ UNCHANGED shares
  /\ UNCHANGED <<insert, owner, rows, watch, heard, asks, busy, stream, counts>>

(* The row, the end of the shared lock and the notification, all at once;   *)
(* the notification reaches whoever LISTENs, unless it is lost on its way.  *)
Commit(i) ==
  /\ insert[i] = "inserted" /\ (i \in shares \/ tells[i])
  /\ insert' = [insert EXCEPT ![i] = "committed"]
  /\ shares' = shares \ {i}
  /\ rows' = rows + 1
  /\ \/ heard' = [c \in Controllers |-> heard[c] \/ tells[i]] /\ UNCHANGED losses
     \/ tells[i] /\ losses > 0 /\ losses' = losses - 1 /\ UNCHANGED heard
  /\ UNCHANGED <<tells, owner, watch, asks, busy, stream, deaths, fills>>

(* A claim. It takes a row, or finds the queue empty. A watch that took the *)
(* last row stays one; one that found plenty gives up its lock.             *)
Take(c) ==
  /\ rows' = rows - 1
  /\ IF owner = c /\ rows = 1
     THEN watch' = [watch EXCEPT ![c] = "asleep"] /\ UNCHANGED owner
     ELSE /\ watch' = [watch EXCEPT ![c] = "awake"]
          /\ owner' = IF owner = c THEN "nobody" ELSE owner     \* tuskline.unwatch

Look(c) ==
  /\ watch[c] \in {"awake", "last"} /\ ~busy[c]
  /\ IF rows > 0 /\ c \notin Strangers
     THEN Take(c)
     ELSE /\ watch' = [watch EXCEPT ![c] =
                 CASE watch[c] = "last" -> "asleep"
                   [] stream[c] -> IF Flaw = "a stream is not polled" THEN "asleep" ELSE "awake"
                   [] OTHER -> "falling"]
          /\ UNCHANGED <<rows, owner>>
  /\ UNCHANGED <<insert, tells, shares, heard, asks, busy, stream, counts>>

(* tuskline.watch, after an empty look or standing by: held (ours), taken    *)
(* (another controller's) or busy (an insert is under way: poll). Somebody  *)
(* who is busy, or polls a stream, does not keep a lock.                    *)
Held(c) ==
  IF busy[c] \/ stream[c]
  THEN watch' = [watch EXCEPT ![c] = "awake"] /\ UNCHANGED owner
  ELSE /\ watch' = [watch EXCEPT ![c] = IF Flaw = "looks before it locks" THEN "asleep" ELSE "last"]
       /\ owner' = c

(* Shared: the lock may be kept for another queue, or may have been free    *)
(* since the last question. Standing by, one peeks whenever one asks.       *)
Shared == Strangers # {}
Taken(c) ==
  IF Shared /\ watch[c] = "asleep" /\ rows > 0 /\ c \notin Strangers
       /\ Flaw # "a shared bell is trusted"
  THEN "awake" ELSE "asleep"

AskLock(c, taken) ==
  CASE owner = "nobody" /\ shares = {} ->
         Held(c) /\ asks' = [asks EXCEPT ![c] = FALSE]
    [] owner = "nobody" /\ shares # {} ->
         watch' = [watch EXCEPT ![c] = "awake"] /\ asks' = [asks EXCEPT ![c] = FALSE] /\ UNCHANGED owner
    [] OTHER ->
         watch' = [watch EXCEPT ![c] = Taken(c)] /\ asks' = [asks EXCEPT ![c] = taken] /\ UNCHANGED owner

Watch(c) ==
  /\ watch[c] = "falling"
  /\ AskLock(c, TRUE)
  /\ UNCHANGED <<insert, tells, shares, rows, heard, busy, stream, counts>>

(* The pauses grow: it stops when the watch has long been asleep again.     *)
Ask(c) ==
  /\ asks[c] /\ watch[c] = "asleep" /\ owner # c
  /\ AskLock(c, owner # "nobody" => ~(watch[owner] = "asleep" /\ ~heard[owner]))
  /\ UNCHANGED <<insert, tells, shares, rows, heard, busy, stream, counts>>

(* Called, a watch looks and stays one, or gives up its lock: because it is *)
(* busy, or because the calls come too fast.                                *)
Called(c) ==
  IF Flaw = "a busy watch stays" /\ busy[c]
  THEN UNCHANGED <<watch, owner, stream>>
  ELSE \/ ~busy[c] /\ ~stream[c] /\ watch' = [watch EXCEPT ![c] = "last"]
          /\ UNCHANGED <<owner, stream>>
       \/ watch' = [watch EXCEPT ![c] = "awake"] /\ owner' = "nobody"
          /\ stream' = [stream EXCEPT ![c] = stream[c] \/ ~busy[c]]

(* A call for a queue that is not its own costs the insert a notification    *)
(* because of it: it counts.                                                 *)
CalledForAnother(c) ==
  \/ UNCHANGED <<watch, owner, stream>>
  \/ watch' = [watch EXCEPT ![c] = "awake"] /\ owner' = "nobody"
     /\ stream' = [stream EXCEPT ![c] = TRUE]

(* A watch that got busy before it could look gives up, too (no_free_slot). *)
GiveUp(c) ==
  /\ busy[c] /\ owner = c /\ watch[c] = "last"
  /\ watch' = [watch EXCEPT ![c] = "awake"] /\ owner' = "nobody"
  /\ UNCHANGED <<insert, tells, shares, rows, heard, asks, busy, stream, counts>>

Hear(c) ==
  /\ heard[c] /\ watch[c] # "dead"
  /\ heard' = [heard EXCEPT ![c] = FALSE]
  /\ CASE owner = c -> (IF c \in Strangers THEN CalledForAnother(c) ELSE Called(c)) /\ UNCHANGED asks
       [] owner # c /\ watch[c] = "asleep" ->
            /\ asks' = [asks EXCEPT ![c] = Flaw # "standby is deaf"] /\ UNCHANGED <<watch, owner>>
            /\ stream' \in {stream, [stream EXCEPT ![c] = TRUE]}
       [] OTHER -> watch' = [watch EXCEPT ![c] = "awake"] /\ UNCHANGED <<asks, owner, stream>>
  /\ UNCHANGED <<insert, tells, shares, rows, busy, counts>>

SafetyPoll(c) ==
  /\ Poll /\ watch[c] = "asleep"
  /\ watch' = [watch EXCEPT ![c] = IF owner = c THEN "last" ELSE "awake"]
  /\ UNCHANGED <<insert, tells, shares, owner, rows, heard, asks, busy, stream, counts>>

(* The executors get work, from another queue for instance, and end it.     *)
Fill(c) ==
  /\ fills > 0 /\ fills' = fills - 1 /\ watch[c] # "dead" /\ ~busy[c]
  /\ busy' = [busy EXCEPT ![c] = TRUE]
  /\ UNCHANGED <<insert, tells, shares, owner, rows, watch, heard, asks, stream, losses, deaths>>

Free(c) ==
  /\ busy[c] /\ busy' = [busy EXCEPT ![c] = FALSE]
  /\ UNCHANGED <<insert, tells, shares, owner, rows, watch, heard, asks, stream, counts>>

Ebb(c) ==
  /\ stream[c] /\ stream' = [stream EXCEPT ![c] = FALSE]
  /\ UNCHANGED <<insert, tells, shares, owner, rows, watch, heard, asks, busy, counts>>

(* A session that ends gives up its lock, and tells nobody. *)
Die(c) ==
  /\ deaths > 0 /\ deaths' = deaths - 1 /\ watch[c] # "dead"
  /\ watch' = [watch EXCEPT ![c] = "dead"]
  /\ owner' = IF owner = c THEN "nobody" ELSE owner
  /\ UNCHANGED <<insert, tells, shares, rows, heard, asks, busy, stream, losses, fills>>

Next ==
  \/ \E i \in Inserters : Insert(i) \/ TryShared(i) \/ Commit(i)
  \/ \E c \in Controllers :
       \/ Look(c) \/ Watch(c) \/ Ask(c) \/ Hear(c) \/ SafetyPoll(c)
       \/ GiveUp(c) \/ Fill(c) \/ Free(c) \/ Ebb(c) \/ Die(c)

(* Nobody is obliged to begin an insert, or to notice nothing for ever.     *)
Spec ==
  /\ Init /\ [][Next]_vars
  /\ \A i \in Inserters : WF_vars(TryShared(i)) /\ WF_vars(Commit(i))
  /\ \A c \in Controllers :
       /\ WF_vars(Look(c)) /\ WF_vars(Watch(c)) /\ WF_vars(Ask(c)) /\ WF_vars(Hear(c))
       /\ WF_vars(SafetyPoll(c)) /\ WF_vars(GiveUp(c)) /\ WF_vars(Free(c)) /\ WF_vars(Ebb(c))

--------------------------------------------------------------------------
OneOwner == owner = "nobody" \/ shares = {}
Counted == rows <= Cardinality({i \in Inserters : insert[i] = "committed"})

(* While a row waits, and somebody could take it, such a one is awake, has  *)
(* been told, or will ask for a lock that its holder does not sit on.       *)
SitsOn(c) == owner = c /\ (busy[c] \/ c \in Strangers) /\ watch[c] = "asleep" /\ ~heard[c]
Idle == {c \in Controllers \ Strangers : watch[c] # "dead" /\ ~busy[c]}
NobodySleepsPast ==
  rows > 0 /\ Idle # {} => \E c \in Idle :
    \/ watch[c] \in {"awake", "falling", "last"}
    \/ watch[c] = "asleep" /\ (heard[c] \/ (asks[c] /\ ((Shared /\ Flaw # "a shared bell is trusted") \/ owner = "nobody" \/ ~SitsOn(owner))))

EventuallyClaimed == []<>(rows = 0)
=============================================================================
