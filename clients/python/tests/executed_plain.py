"""The same lambdas without those that are isolated, for executors that are started afresh."""

from tuskline import Tuskline

from . import executed

app = Tuskline()
app.lambdas = {name: one for name, one in executed.app.lambdas.items() if not one.isolate}
app.definitions = {name: executed.app.definitions[name] for name in app.lambdas}
