@echo off
rem The client of PaddleCloud. It needs Python 3.11 or newer, or what PADDLECLOUD_PYTHON names.
if defined PADDLECLOUD_PYTHON goto named
where py >nul 2>nul
if errorlevel 1 goto plain
py -3 -s "%~dp0lib\run.py" %*
exit /b %errorlevel%
:plain
python -s "%~dp0lib\run.py" %*
exit /b %errorlevel%
:named
"%PADDLECLOUD_PYTHON%" -s "%~dp0lib\run.py" %*
exit /b %errorlevel%
