"""A server of questions on this machine: rows of a batch's list in, lines of its results out, models kept between them.

:class:`.server.QuestionServer` answers in one thread what :class:`.http_service.HttpService` takes from clients into a
:class:`.service_queue.ServiceQueue`; where it is, and its token, stand in files of a
:class:`.server_folder.ServerFolder`, by which :mod:`.warm_client` asks it to run a command.
"""
